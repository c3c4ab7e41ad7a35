/* Frames and messages of TensorBoard's event files.
 *
 * A frame is: length u64, masked CRC-32C of the length, the message, masked CRC-32C of the message;
 * little-endian. The messages are built from the field numbers of
 * tensorboard/compat/proto/{event,summary,tensor}.proto; fields that hold their default are left
 * out, as proto3 does. Does not read event files. Source: those files and TFRecord's description.
 */
#include "report/events.h"

#include <string.h>

#include "base/crc32c.h"

static void put_u32(struct hl_buf *out, uint32_t value) {
    unsigned char bytes[4];
    for (int i = 0; i < 4; i++) bytes[i] = (unsigned char)(value >> 8 * i);
    hl_buf_add(out, bytes, 4);
}

static void put_u64(struct hl_buf *out, uint64_t value) {
    put_u32(out, (uint32_t)value);
    put_u32(out, (uint32_t)(value >> 32));
}

static void put_crc(struct hl_buf *out, const void *bytes, size_t n) {
    uint32_t crc = hl_crc32c(bytes, n);
    put_u32(out, ((crc >> 15) | (crc << 17)) + 0xA282EAD8u);
}

/* ---- protobuf ---- */

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(struct hl_buf *out, uint64_t value) {
    unsigned char bytes[10];
    size_t n = 0;
    do {
        bytes[n++] = (unsigned char)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
        value >>= 7;
    } while (value);
    hl_buf_add(out, bytes, n);
}

static void put_key(struct hl_buf *out, unsigned field, enum wire wire) {
    put_varint(out, field << 3 | wire);
}

static void put_int(struct hl_buf *out, unsigned field, int64_t value) {
    if (!value) return;
    put_key(out, field, VARINT);
    put_varint(out, (uint64_t)value);
}

static void put_bytes(struct hl_buf *out, unsigned field, const void *bytes, size_t n) {
    put_key(out, field, BYTES);
    put_varint(out, n);
    hl_buf_add(out, bytes, n);
}

static void put_text(struct hl_buf *out, unsigned field, const char *text) {
    put_bytes(out, field, text, strlen(text));
}

static void put_message(struct hl_buf *out, unsigned field, struct hl_buf *message) {
    if (message->failed) out->failed = true;
    else put_bytes(out, field, message->data ? message->data : "", message->n);
    hl_buf_free(message);
}

static void put_f32(struct hl_buf *out, unsigned field, double value) {
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    put_key(out, field, FIXED32);
    put_u32(out, bits);
}

/* ---- events ---- */

enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP,
    EVENT_FILE_VERSION,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7
};
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, METADATA_CLASS = 4, PLUGIN_NAME = 1, CLASS_TENSOR = 2 };
enum {
    TENSOR_TYPE = 1,
    TENSOR_SHAPE = 2,
    TENSOR_STRING = 8,
    TYPE_STRING = 7,
    SHAPE_DIM = 2,
    DIM_SIZE = 1
};
enum { SESSION_STATUS = 1, SESSION_START = 1 };

static struct hl_buf event_begin(struct hl_mem *mem, double wall, int64_t step) {
    struct hl_buf event = {.mem = mem};
    uint64_t bits;
    memcpy(&bits, &wall, sizeof bits);
    put_key(&event, EVENT_WALL_TIME, FIXED64);
    put_u64(&event, bits);
    put_int(&event, EVENT_STEP, step);
    return event;
}

static void event_end(struct hl_buf *out, struct hl_buf *event) {
    if (event->failed) out->failed = true;
    else {
        unsigned char length[8];
        for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)event->n >> 8 * i);
        hl_buf_add(out, length, 8);
        put_crc(out, length, 8);
        hl_buf_add(out, event->data, event->n);
        put_crc(out, event->data, event->n);
    }
    hl_buf_free(event);
}

static void event_value(struct hl_buf *out, struct hl_buf *event, struct hl_buf *value) {
    struct hl_buf summary = {.mem = out->mem};
    put_message(&summary, SUMMARY_VALUE, value);
    put_message(event, EVENT_SUMMARY, &summary);
    event_end(out, event);
}

void hl_event_version(struct hl_buf *out, double wall) {
    struct hl_buf event = event_begin(out->mem, wall, 0);
    put_text(&event, EVENT_FILE_VERSION, "brain.Event:2");
    event_end(out, &event);
}

void hl_event_restart(struct hl_buf *out, double wall, int64_t step) {
    struct hl_buf event = event_begin(out->mem, wall, step), session = {.mem = out->mem};
    put_int(&session, SESSION_STATUS, SESSION_START);
    put_message(&event, EVENT_SESSION_LOG, &session);
    event_end(out, &event);
}

void hl_event_scalar(struct hl_buf *out, double wall, int64_t step, const char *tag,
                     double number) {
    struct hl_buf event = event_begin(out->mem, wall, step), value = {.mem = out->mem};
    put_text(&value, VALUE_TAG, tag);
    put_f32(&value, VALUE_SIMPLE, number);
    event_value(out, &event, &value);
}

static void put_text_metadata(struct hl_buf *value) {
    struct hl_buf plugin = {.mem = value->mem}, metadata = {.mem = value->mem};
    put_text(&plugin, PLUGIN_NAME, "text");
    put_message(&metadata, METADATA_PLUGIN, &plugin);
    put_int(&metadata, METADATA_CLASS, CLASS_TENSOR);
    put_message(value, VALUE_METADATA, &metadata);
}

/* A tensor of one string. */
static void put_text_tensor(struct hl_buf *value, const char *utf8, size_t n) {
    struct hl_buf dim = {.mem = value->mem}, shape = {.mem = value->mem},
                  tensor = {.mem = value->mem};
    put_int(&dim, DIM_SIZE, 1);
    put_message(&shape, SHAPE_DIM, &dim);
    put_int(&tensor, TENSOR_TYPE, TYPE_STRING);
    put_message(&tensor, TENSOR_SHAPE, &shape);
    put_bytes(&tensor, TENSOR_STRING, utf8, n);
    put_message(value, VALUE_TENSOR, &tensor);
}

void hl_event_text(struct hl_buf *out, double wall, int64_t step, const char *tag, const char *utf8,
                   size_t n) {
    struct hl_buf event = event_begin(out->mem, wall, step), value = {.mem = out->mem};
    put_text(&value, VALUE_TAG, tag);
    put_text_tensor(&value, utf8, n);
    put_text_metadata(&value);
    event_value(out, &event, &value);
}

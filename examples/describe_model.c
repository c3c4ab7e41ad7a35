/* What a preset model consists of: blocks, and the ranges they own in the flat parameter vector.
 *
 *     cc describe_model.c $(pkg-config --cflags --libs halley) && ./a.out gpt2-124m */
#include <halley/halley.h>

#include <stdio.h>

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "llama-tiny";
    struct hl_model_config config;
    struct hl_model *model;
    struct hl_diag diag;
    if (hl_model_preset(name, &config, &diag) ||
        hl_model_new(hl_mem_default(), &config, &model, &diag)) {
        fprintf(stderr, "describe_model: %s\n", diag.text);
        return 1;
    }
    for (int b = 0; b < model->layout.n_blocks; b++) {
        struct hl_range range = model->layout.blocks[b];
        printf("block %2d: %lld parameters from %lld\n", b, (long long)range.n,
               (long long)range.offset);
    }
    printf("%s: %lld parameters\n", name, (long long)model->layout.n_weights);
    hl_model_free(model);
    return 0;
}

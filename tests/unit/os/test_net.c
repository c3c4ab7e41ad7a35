/* Addresses, routes and doors, all on this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "os/net.h"

/* A bare chroot has no /etc/hosts. */
static bool knows_localhost(void) {
    struct addrinfo *list = NULL;
    bool known = !getaddrinfo("localhost", NULL, NULL, &list);
    if (known) freeaddrinfo(list);
    return known;
}

static void test_resolve(void **state) {
    struct hl_net_address a;
    struct hl_diag diag;
    static const char *const bad[] = {
        "",      "host", "10.0.0.7", ":80",   "host:",   "a:b:80",     "[::1]",
        "[]:80", "h:0",  "h:65536",  "h:12x", "[::1:80", "fe80::1:80", "h:-1"};
    (void)state;
    assert_int_equal(hl_net_resolve("10.1.2.3:29500", &a, &diag), HL_OK);
    assert_string_equal(a.ip, "10.1.2.3");
    assert_int_equal(a.port, 29500);
    assert_false(a.loopback || a.ipv6);
    assert_int_equal(hl_net_resolve("127.3.2.1:1", &a, &diag), HL_OK);
    assert_true(a.loopback);
    if (knows_localhost()) {
        assert_int_equal(hl_net_resolve("localhost:1", &a, &diag), HL_OK);
        assert_true(a.loopback);
    } else print_message("SKIP: this machine does not know the name localhost\n");
    assert_int_equal(hl_net_resolve("[::1]:65535", &a, &diag), HL_OK);
    assert_true(a.loopback && a.ipv6);
    assert_string_equal(a.ip, "::1");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hl_net_resolve(bad[i], &a, &diag), HL_E_USER);
        assert_non_null(strstr(diag.text, "host:port"));
    }
    assert_int_equal(hl_net_resolve("a..b:80", &a, &diag), HL_E_USER); /* asks nobody */
    assert_non_null(strstr(diag.text, "'a..b'"));
}

static void test_routes_and_interfaces(void **state) {
    struct hl_net_address to, from;
    struct hl_diag diag;
    (void)state;
    assert_int_equal(hl_net_resolve("127.0.0.1:80", &to, &diag), HL_OK);
    assert_int_equal(hl_net_route(&to, &from, &diag), HL_OK);
    assert_string_equal(from.ip, "127.0.0.1");
    assert_int_equal(from.port, 0);
    assert_int_equal(hl_net_interface("lo", false, &from, &diag), HL_OK);
    assert_string_equal(from.ip, "127.0.0.1");
    assert_int_equal(hl_net_interface("lo7", false, &from, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "there are: lo"));
}

static void test_links(void **state) {
    struct hl_net_link links[64];
    struct hl_net_address a;
    struct hl_diag diag = {0};
    char name[200] = "";
    bool found = false;
    (void)state;
    int n = hl_net_links(links, 64);
    for (int i = 0; i < n && i < 64; i++) {
        found |= !strcmp(links[i].name, "lo") && !strcmp(links[i].address.ip, "127.0.0.1") &&
                 links[i].address.loopback && links[i].mtu > 0;
        assert_int_equal(links[i].address.port, 0);
        assert_true(i == 0 || !links[i - 1].address.ipv6 || links[i].address.ipv6);
    }
    assert_true(found);
    assert_int_equal(hl_net_links(links, 0), n);
    enum hl_status status = hl_net_own_name(name, sizeof name, &a, &diag);
    assert_true(*name); /* whether it has an address is this machine's affair */
    assert_true(status == HL_OK ? a.port == 0 && *a.ip : *diag.text != 0);
}

/* 1: a connection to the address was accepted and answers within the milliseconds. */
static int reaches(const struct hl_net_address *at, int listening, int *accepted) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons((uint16_t)at->port)};
    (void)inet_pton(AF_INET, at->ip, &there.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_true(s >= 0);
    (void)connect(s, (struct sockaddr *)&there, sizeof there);
    struct pollfd p = {.fd = listening, .events = POLLIN};
    int n = poll(&p, 1, 200);
    if (n == 1) *accepted = accept(listening, NULL, NULL);
    if (n != 1) (void)close(s);
    return n == 1 ? s : -1;
}

static void test_listen_and_shut(void **state) {
    struct hl_net_address at, again;
    struct hl_diag diag;
    int accepted = -1, other = -1;
    char c = 0;
    (void)state;
    assert_int_equal(hl_net_interface("lo", false, &at, &diag), HL_OK);
    int s = hl_net_listen(&at, &diag);
    assert_true(s >= 0 && at.port > 0);
    again = at;
    assert_int_equal(hl_net_listen(&again, &diag), -1);
    assert_int_equal(diag.status, HL_E_IO);
    assert_non_null(strstr(diag.text, "another job"));
    int client = reaches(&at, s, &accepted);
    assert_true(client >= 0 && accepted >= 0);
    hl_net_shut_door(s);
    assert_int_equal(reaches(&at, s, &other), -1);
    assert_int_equal(write(client, "x", 1), 1); /* the one that stands still works */
    assert_int_equal(read(accepted, &c, 1), 1);
    assert_int_equal(c, 'x');
    (void)close(client);
    (void)close(accepted);
    (void)close(s);
    again = (struct hl_net_address){.ip = "192.0.2.1"}; /* TEST-NET-1: nobody's */
    assert_int_equal(hl_net_listen(&again, &diag), -1);
    assert_non_null(strstr(diag.text, "no address of this machine"));
}

static void test_reserve(void **state) {
    struct hl_net_address at = {.ip = "127.0.0.1"}, again, any;
    struct hl_diag diag;
    (void)state;
    int reserved = hl_net_reserve(&at, &diag);
    assert_true(reserved >= 0 && at.port > 0);
    for (int i = 0; i < 200; i++) {
        any = (struct hl_net_address){.ip = "127.0.0.1"};
        int s = hl_net_listen(&any, &diag);
        assert_true(s >= 0 && any.port != at.port);
        (void)close(s);
    }
    again = at;
    int s = hl_net_listen(&again, &diag);
    assert_true(s >= 0 && again.port == at.port);
    (void)close(s);
    (void)close(reserved);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resolve), cmocka_unit_test(test_routes_and_interfaces),
        cmocka_unit_test(test_links),   cmocka_unit_test(test_listen_and_shut),
        cmocka_unit_test(test_reserve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

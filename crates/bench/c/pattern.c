/* Messages between two processes, the plain patterns.
 *
 *   pattern listen|connect ADDRESS PORT SECONDS pingpong|stream|both OCTETS
 *
 * pingpong: Sends to and fro, completions polled: {"us": half of a round trip, "p50": its median}.
 * stream:   RDMA Writes one way: {"gbps": ..., "bytes": ...}, until the other side has them all.
 * both:     the same both ways at once, the sum of both. */

#include "peer.h"
#include "trips.h"

enum { EACH = 16, WINDOW = 128, WARM_UP = 100 };

static const char LAST = 1;

/* Which is the last one says its first octet, so neither side counts. */
static void send_message(struct peer *p, size_t bytes, int last, long round) {
    int flags = round % EACH == EACH - 1 ? IBV_SEND_SIGNALED : 0;
    p->memory[0] = last ? LAST : 0;
    post(p, IBV_WR_SEND, 0, 0, bytes, last ? IBV_SEND_SIGNALED : flags);
    if (last || flags)
        wait_for(p->id->send_cq);
}

static int take_message(struct peer *p) {
    wait_for(p->id->recv_cq);
    int last = p->memory[p->bytes] == LAST;
    receive_data(p);
    return last;
}

static void pingpong(struct peer *p, size_t bytes) {
    long round = 0;
    int last = 0;
    if (!p->connects) {
        for (; !last; round++) {
            last = take_message(p);
            send_message(p, bytes, last, round);
        }
        return;
    }
    /* Whatever is done for the first time only is no part of it. */
    double began = now_s(), elapsed = 0;
    for (; round == 0 || (round < WARM_UP && now_s() - began < p->seconds / 10); round++) {
        send_message(p, bytes, 0, round);
        take_message(p);
    }
    struct trips trips = {0};
    double before = now_s();
    for (began = before; !last; round++) {
        last = elapsed > p->seconds;
        send_message(p, bytes, last, round);
        take_message(p);
        double now = now_s();
        add_trip(&trips, (now - before) * 1e6);
        before = now;
        elapsed = now - began;
    }
    print_trips(&trips);
}

/* Writes for `seconds`; how many bytes are complete then, which is all. */
static double stream(struct peer *p, size_t bytes, double seconds) {
    int posted = 0, outstanding = 0;
    double began = now_s(), total = 0;
    while (now_s() - began < seconds) {
        while (outstanding < WINDOW) {
            int flags = ++posted % EACH == 0 ? IBV_SEND_SIGNALED : 0;
            post_write(p, bytes, flags);
            outstanding++;
        }
        wait_for(p->id->send_cq);
        outstanding -= EACH;
        total += (double)EACH * bytes;
    }
    for (; outstanding > 0; outstanding -= EACH) {
        wait_for(p->id->send_cq);
        total += (double)EACH * bytes;
    }
    return total;
}

static void one_way(struct peer *p, size_t bytes) {
    if (!p->connects) {
        tell(p, hear(p));
        return;
    }
    stream(p, bytes, p->seconds / 10);
    double began = now_s(), total = stream(p, bytes, p->seconds);
    tell(p, total);
    hear(p);
    double elapsed = now_s() - began;
    printf("{\"gbps\": %.6f, \"bytes\": %.0f}\n", total * 8 / elapsed / 1e9, total);
}

static void both_ways(struct peer *p, size_t bytes) {
    if (!p->connects) {
        hear(p);
        tell(p, stream(p, bytes, p->seconds));
        hear(p);
        return;
    }
    double began = now_s();
    tell(p, 0);
    double total = stream(p, bytes, p->seconds);
    tell(p, total);
    total += hear(p);
    double elapsed = now_s() - began;
    printf("{\"gbps\": %.6f, \"bytes\": %.0f}\n", total * 8 / elapsed / 1e9, total);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: pattern listen|connect ADDRESS PORT SECONDS PATTERN OCTETS\n");
        return 2;
    }
    size_t bytes = strtoul(argv[6], NULL, 10);
    int pings = strcmp(argv[5], "pingpong") == 0;
    /* Control takes the first bytes of what is sent from. */
    struct peer p = meet(argv, bytes < CONTROL && !pings ? CONTROL : bytes,
                         pings ? receive_data : receive);
    if (pings)
        pingpong(&p, bytes);
    else if (strcmp(p.pattern, "stream") == 0)
        one_way(&p, bytes);
    else
        both_ways(&p, bytes);
    part(&p);
    return 0;
}

/* How large messages find their place, and what it takes to have a connection.
 *
 *   exchange listen|connect ADDRESS PORT SECONDS eager|by-write|by-read|connect NUMBER
 *
 * Of NUMBER bytes: {"us": until the side that began knows that the other one has them}.
 * eager:    one message into a receive; a message says that it is there.
 * by-write: START, REPLY with the place, an RDMA Write and FIN; a message says that it is there.
 * by-read:  START with the place, an RDMA Read by the other side, FIN.
 * connect:  NUMBER connections one after the other, all kept: {"us": for each of them}. */

#include "peer.h"

enum { AT_LEAST = 3, CONNECTIONS_MAX = 4096 };

static const char MORE = 1, END = 2;

/* A message of control; its first octet says whether there is more to come. */
static void say(struct peer *p, char what, size_t bytes) {
    p->memory[0] = what;
    post(p, IBV_WR_SEND, 0, 0, bytes, IBV_SEND_SIGNALED);
    wait_for(p->id->send_cq);
}

/* Without waiting for it to complete, so that it leaves at once. */
static char heard(struct peer *p) {
    wait_for(p->id->recv_cq);
    char what = p->memory[p->bytes];
    receive_data(p);
    return what;
}

static void begin_one(struct peer *p, char what, size_t bytes) {
    if (strcmp(p->pattern, "eager") == 0) {
        say(p, what, bytes);
    } else {
        say(p, what, 1);
        if (strcmp(p->pattern, "by-write") == 0) {
            heard(p);
            /* The FIN is behind the Write, and is heard when that has been placed. */
            post_write(p, bytes, 0);
            say(p, MORE, 1);
        }
    }
    heard(p);
}

static char take_one(struct peer *p, size_t bytes) {
    char what = heard(p);
    if (strcmp(p->pattern, "by-write") == 0) {
        say(p, MORE, 1);
        heard(p);
    } else if (strcmp(p->pattern, "by-read") == 0) {
        post(p, IBV_WR_RDMA_READ, p->bytes, 0, bytes, IBV_SEND_SIGNALED);
        wait_for(p->id->send_cq);
    }
    say(p, MORE, 1);
    return what;
}

static void exchange(char **argv, size_t bytes) {
    struct peer p = meet(argv, bytes, receive_data);
    if (p.connects) {
        begin_one(&p, MORE, bytes);
        double began = now_s(), elapsed = 0;
        long count = 0;
        for (; count < AT_LEAST || elapsed < p.seconds; count++) {
            begin_one(&p, MORE, bytes);
            elapsed = now_s() - began;
        }
        printf("{\"us\": %.4f}\n", elapsed * 1e6 / count);
        begin_one(&p, END, bytes);
    } else {
        while (take_one(&p, bytes) != END)
            ;
    }
    part(&p);
}

static void connections(char **argv, int count) {
    static struct peer peers[CONNECTIONS_MAX];
    struct rdma_cm_id *listener = NULL;
    double began = now_s();
    for (int i = 0; i < count; i++)
        peers[i] = join(argv, &listener, CONTROL, receive);
    double elapsed = now_s() - began;
    if (peers[0].connects) {
        printf("{\"us\": %.4f}\n", elapsed * 1e6 / count);
        tell(&peers[0], 0);
    } else {
        hear(&peers[0]);
    }
    for (int i = 0; i < count; i++)
        part(&peers[i]);
    if (listener)
        rdma_destroy_ep(listener);
}

int main(int argc, char **argv) {
    if (argc != 7 || atol(argv[6]) < 1) {
        fprintf(stderr, "usage: exchange listen|connect ADDRESS PORT SECONDS PATTERN NUMBER\n");
        return 2;
    }
    size_t number = strtoul(argv[6], NULL, 10);
    if (strcmp(argv[5], "connect") == 0)
        connections(argv, number < CONNECTIONS_MAX ? (int)number : CONNECTIONS_MAX);
    else
        exchange(argv, number);
    return 0;
}

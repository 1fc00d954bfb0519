/* Many connections of one application on one completion queue.
 *
 *   many listen|connect ADDRESS PORT SECONDS one|all|calls COUNT
 *
 * one:   a ping-pong on one of COUNT connections: {"us": half of a round trip, "p50": its median}.
 * all:   a ping-pong on each of them at once: {"per_second": round trips}.
 * calls: medians of calls of one that sleeps until events:
 *        {"calls": {"arm": us, "poll, something there": us}}. */

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "trips.h"

enum { BYTES = 64, DEPTH = 8, BACKLOG = 128, WARM_UP = 100, SAMPLES = 1000, BATCH = 16 };

static const char MORE = 0, LAST = 1;
/* Of requests that send; those of receives are the connection's index. */
static const uint64_t SENT = ~0ull;

static int connects, count;
static struct rdma_cm_id **ids;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
/* For each connection a message to send and one to receive into. */
static char (*memory)[2][BYTES];
static long *sent;

static void must(int failed, const char *what) {
    if (failed) {
        perror(what);
        exit(1);
    }
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static struct rdma_cm_id *endpoint(char **argv, int flags) {
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = flags}, *info;
    struct rdma_cm_id *id;
    must(rdma_getaddrinfo(argv[2], argv[3], &hints, &info), "rdma_getaddrinfo");
    must(rdma_create_ep(&id, info, NULL, NULL), "rdma_create_ep");
    rdma_freeaddrinfo(info);
    return id;
}

static void share(struct ibv_context *device) {
    channel = ibv_create_comp_channel(device);
    must(channel == NULL, "ibv_create_comp_channel");
    cq = ibv_create_cq(device, 2 * DEPTH * count, NULL, channel, 0);
    must(cq == NULL, "ibv_create_cq");
    pd = ibv_alloc_pd(device);
    must(pd == NULL, "ibv_alloc_pd");
    mr = ibv_reg_mr(pd, memory, count * sizeof *memory, IBV_ACCESS_LOCAL_WRITE);
    must(mr == NULL, "ibv_reg_mr");
}

static void receive(int index) {
    struct ibv_sge sge = {(uintptr_t)memory[index][1], BYTES, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1}, *bad;
    must(ibv_post_recv(ids[index]->qp, &wr, &bad), "ibv_post_recv");
}

static void send_message(int index, char what) {
    memory[index][0][0] = what;
    struct ibv_sge sge = {(uintptr_t)memory[index][0], BYTES, mr->lkey};
    struct ibv_send_wr wr = {
        .wr_id = SENT,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = ++sent[index] % (DEPTH / 2) == 0 ? IBV_SEND_SIGNALED : 0,
    }, *bad;
    must(ibv_post_send(ids[index]->qp, &wr, &bad), "ibv_post_send");
}

static void prepare(int index) {
    struct ibv_qp_init_attr attributes = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    must(rdma_create_qp(ids[index], pd, &attributes), "rdma_create_qp");
    receive(index);
}

static void meet(char **argv) {
    struct rdma_conn_param how = {.retry_count = 7, .rnr_retry_count = 7};
    struct rdma_cm_id *listener = connects ? NULL : endpoint(argv, RAI_PASSIVE);
    must(listener && rdma_listen(listener, BACKLOG), "rdma_listen");
    for (int i = 0; i < count; i++) {
        if (connects)
            ids[i] = endpoint(argv, 0);
        else
            must(rdma_get_request(listener, &ids[i]), "rdma_get_request");
        if (i == 0)
            share(ids[i]->verbs);
        prepare(i);
        if (connects)
            must(rdma_connect(ids[i], &how), "rdma_connect");
        else
            must(rdma_accept(ids[i], &how), "rdma_accept");
    }
}

static int poll_cq(struct ibv_wc *completions, int room) {
    int found = ibv_poll_cq(cq, room, completions);
    must(found < 0, "ibv_poll_cq");
    for (int i = 0; i < found; i++)
        if (completions[i].status != IBV_WC_SUCCESS) {
            fprintf(stderr, "a request failed: %s\n", ibv_wc_status_str(completions[i].status));
            exit(1);
        }
    return found;
}

/* Sends back what comes until a message is the last one. */
static void serve(void) {
    for (int last = 0; !last;) {
        struct ibv_wc completions[BATCH];
        int found = poll_cq(completions, BATCH);
        for (int i = 0; i < found; i++) {
            if (completions[i].wr_id == SENT)
                continue;
            int index = completions[i].wr_id;
            char what = memory[index][1][0];
            receive(index);
            send_message(index, what);
            last |= what == LAST;
        }
    }
}

/* Waits until the client has ended its first connection. It looks at its completions no more then:
 * before, it might find the flush of one connection ahead of the last answer on another. */
static void await_end(void) {
    struct rdma_cm_event *event;
    must(rdma_get_cm_event(ids[0]->channel, &event), "rdma_get_cm_event");
    must(event->event != RDMA_CM_EVENT_DISCONNECTED, "waiting for the end");
    must(rdma_ack_cm_event(event), "rdma_ack_cm_event");
}

/* The connection on which a message has arrived. */
static int wait_for_message(void) {
    struct ibv_wc completion;
    do
        while (poll_cq(&completion, 1) == 0)
            ;
    while (completion.wr_id == SENT);
    receive(completion.wr_id);
    return completion.wr_id;
}

static double round_trip_us(int index, char what) {
    double began = now_s();
    send_message(index, what);
    wait_for_message();
    return (now_s() - began) * 1e6;
}

static void one(double seconds) {
    int index = count / 2;
    struct trips trips = {0};
    for (int i = 0; i < WARM_UP; i++)
        round_trip_us(index, MORE);
    for (double began = now_s(); now_s() - began < seconds;)
        add_trip(&trips, round_trip_us(index, MORE));
    print_trips(&trips);
}

static void all(double seconds) {
    long done = 0;
    for (int i = 0; i < count; i++)
        send_message(i, MORE);
    double began = now_s(), elapsed = 0;
    for (; elapsed < seconds; done++) {
        send_message(wait_for_message(), MORE);
        elapsed = now_s() - began;
    }
    for (int i = 0; i < count; i++)
        wait_for_message();
    printf("{\"per_second\": %.1f}\n", done / elapsed);
}

static void calls(void) {
    int index = count / 2;
    struct trips arms = {0}, polls = {0};
    for (int i = 0; i < SAMPLES; i++) {
        double began = now_s();
        must(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
        add_trip(&arms, (now_s() - began) * 1e6);
        send_message(index, MORE);
        for (int answered = 0; !answered;) {
            struct ibv_cq *source;
            void *unused;
            struct ibv_wc completion;
            must(ibv_get_cq_event(channel, &source, &unused), "ibv_get_cq_event");
            ibv_ack_cq_events(cq, 1);
            must(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
            for (;;) {
                began = now_s();
                if (poll_cq(&completion, 1) == 0)
                    break;
                add_trip(&polls, (now_s() - began) * 1e6);
                if (completion.wr_id != SENT) {
                    receive(completion.wr_id);
                    answered = 1;
                }
            }
        }
    }
    printf("{\"calls\": {\"arm\": %.4f, \"poll, something there\": %.4f}}\n", median_us(&arms),
           median_us(&polls));
    free(arms.us);
    free(polls.us);
}

/* As many descriptors as this user may have: a connection may take one. */
static void permit_descriptors(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv) {
    if (argc != 7 || (count = atoi(argv[6])) < 1) {
        fprintf(stderr, "usage: many listen|connect ADDRESS PORT SECONDS one|all|calls COUNT\n");
        return 2;
    }
    connects = strcmp(argv[1], "connect") == 0;
    permit_descriptors();
    ids = calloc(count, sizeof *ids);
    sent = calloc(count, sizeof *sent);
    memory = calloc(count, sizeof *memory);
    must(ids == NULL || sent == NULL || memory == NULL, "calloc");
    meet(argv);
    if (!connects) {
        serve();
        await_end();
    } else {
        if (strcmp(argv[5], "one") == 0)
            one(atof(argv[4]));
        else if (strcmp(argv[5], "all") == 0)
            all(atof(argv[4]));
        else
            calls();
        round_trip_us(0, LAST);
    }
    for (int i = 0; i < count; i++)
        rdma_disconnect(ids[i]);
    return 0;
}

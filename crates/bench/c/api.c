/* What the calls of a verbs program cost, and what a connection costs that nobody uses.
 *
 *   api calls ADDRESS PORT          prints nanoseconds per call, one "name value" a line
 *   api idle ADDRESS PORT SECONDS   prints milliseconds of processor time per second
 *
 * One process is both ends: a thread accepts, the main thread connects and measures. */

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { LIST = 32, MESSAGE = 64, REGION = 1 << 20, POLLS = 1000000, LISTS = 2000, REGIONS = 1000 };

static const char *address, *port;
static struct ibv_mr *target;
static char target_memory[MESSAGE];
static sem_t listening, finished;

static void *need(void *result, const char *what) {
    if (result == NULL) {
        perror(what);
        exit(1);
    }
    return result;
}

static void must(int failed, const char *what) { need(failed ? NULL : &listening, what); }

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static struct rdma_cm_id *endpoint(int flags) {
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = flags}, *info;
    struct ibv_qp_init_attr attributes = {
        .cap = {.max_send_wr = 4 * LIST, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct rdma_cm_id *id;
    must(rdma_getaddrinfo(address, port, &hints, &info), "rdma_getaddrinfo");
    must(rdma_create_ep(&id, info, NULL, &attributes), "rdma_create_ep");
    rdma_freeaddrinfo(info);
    return id;
}

static void *accept_one(void *unused) {
    (void)unused;
    struct rdma_cm_id *listener = endpoint(RAI_PASSIVE), *id;
    must(rdma_listen(listener, 1), "rdma_listen");
    sem_post(&listening);
    must(rdma_get_request(listener, &id), "rdma_get_request");
    target = need(rdma_reg_write(id, target_memory, MESSAGE), "rdma_reg_write");
    must(rdma_accept(id, NULL), "rdma_accept");
    sem_wait(&finished);
    rdma_disconnect(id);
    rdma_dereg_mr(target);
    rdma_destroy_ep(id);
    rdma_destroy_ep(listener);
    return NULL;
}

static void wait_for_completion(struct ibv_cq *cq) {
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
        ;
    if (count < 0 || wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "a write failed with status %d\n", wc.status);
        exit(1);
    }
}

/* Nanoseconds per write in lists of `length`, of which the last asks for a completion. */
static double posting(struct rdma_cm_id *id, struct ibv_mr *source, int length) {
    struct ibv_sge sge = {(uintptr_t)source->addr, MESSAGE, source->lkey};
    struct ibv_send_wr list[LIST], *bad;
    memset(list, 0, sizeof list);
    for (int i = 0; i < length; i++) {
        list[i].next = i + 1 < length ? &list[i + 1] : NULL;
        list[i].sg_list = &sge;
        list[i].num_sge = 1;
        list[i].opcode = IBV_WR_RDMA_WRITE;
        list[i].send_flags = i + 1 < length ? 0 : IBV_SEND_SIGNALED;
        list[i].wr.rdma.remote_addr = (uintptr_t)target->addr;
        list[i].wr.rdma.rkey = target->rkey;
    }
    double spent = 0;
    for (int round = 0; round < LISTS; round++) {
        double began = now_ns();
        must(ibv_post_send(id->qp, list, &bad), "ibv_post_send");
        spent += now_ns() - began;
        wait_for_completion(id->send_cq);
    }
    return spent / LISTS / length;
}

static double polling(struct ibv_cq *cq) {
    struct ibv_wc wc;
    double began = now_ns();
    for (int i = 0; i < POLLS; i++)
        must(ibv_poll_cq(cq, 1, &wc) != 0, "ibv_poll_cq");
    return (now_ns() - began) / POLLS;
}

static double registering(struct ibv_pd *pd) {
    void *memory = need(malloc(REGION), "malloc");
    double spent = 0;
    memset(memory, 1, REGION);
    for (int i = 0; i < REGIONS; i++) {
        double began = now_ns();
        struct ibv_mr *mr = ibv_reg_mr(pd, memory, REGION, IBV_ACCESS_LOCAL_WRITE);
        spent += now_ns() - began;
        need(mr, "ibv_reg_mr");
        must(ibv_dereg_mr(mr), "ibv_dereg_mr");
    }
    free(memory);
    return spent / REGIONS;
}

static double cpu_ms(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
    return seconds * 1e3 + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

/* Waits for an event that never comes, after a second in which setting up comes to its end. */
static double idling(struct rdma_cm_id *id, int seconds) {
    must(ibv_req_notify_cq(id->send_cq, 0), "ibv_req_notify_cq");
    struct pollfd event = {id->send_cq_channel->fd, POLLIN, 0};
    must(poll(&event, 1, 1000) != 0, "an event came");
    double before = cpu_ms();
    must(poll(&event, 1, seconds * 1000) != 0, "an event came");
    return (cpu_ms() - before) / seconds;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: api calls|idle ADDRESS PORT [SECONDS]\n");
        return 2;
    }
    address = argv[2];
    port = argv[3];
    sem_init(&listening, 0, 0);
    sem_init(&finished, 0, 0);
    pthread_t server;
    must(pthread_create(&server, NULL, accept_one, NULL), "pthread_create");
    sem_wait(&listening);
    struct rdma_cm_id *id = endpoint(0);
    must(rdma_connect(id, NULL), "rdma_connect");

    static char source_memory[MESSAGE];
    struct ibv_mr *source = need(rdma_reg_msgs(id, source_memory, MESSAGE), "rdma_reg_msgs");
    if (strcmp(argv[1], "idle") == 0) {
        printf("idle %.4f\n", idling(id, argc > 4 ? atoi(argv[4]) : 2));
    } else {
        printf("poll %.1f\n", polling(id->send_cq));
        printf("post_list %.1f\n", posting(id, source, LIST));
        printf("post_one %.1f\n", posting(id, source, 1));
        printf("reg_mr %.1f\n", registering(id->pd));
    }
    rdma_dereg_mr(source);
    sem_post(&finished);
    rdma_disconnect(id);
    pthread_join(server, NULL);
    rdma_destroy_ep(id);
    return 0;
}

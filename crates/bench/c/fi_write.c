/* RDMA Writes through libfabric's tcp provider, a window of them at a time.
 *
 *   fi_write serve ADDRESS PORT SIZE
 *   fi_write write ADDRESS PORT SIZE COUNT   prints "gbps value"
 *
 * Debian has libfabric but not its benchmarks; this is what `fi_rma_bw -o write` does. */

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 64 };

struct target {
    uint64_t address, key;
};

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *events;
static struct fid_cq *completions;
static struct fid_ep *endpoint;
static struct fid_mr *region;
static char *memory;
static size_t size;

static void must(ssize_t result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-result));
        exit(1);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static struct fi_info *find(const char *address, const char *port, uint64_t flags) {
    struct fi_info *hints = fi_allocinfo(), *found;
    hints->caps = FI_MSG | FI_RMA;
    hints->ep_attr->type = FI_EP_MSG;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->fabric_attr->prov_name = strdup("tcp");
    must(fi_getinfo(FI_VERSION(1, 11), address, port, flags, hints, &found), "fi_getinfo");
    fi_freeinfo(hints);
    struct fi_eq_attr attributes = {.wait_obj = FI_WAIT_UNSPEC};
    must(fi_fabric(found->fabric_attr, &fabric, NULL), "fi_fabric");
    must(fi_eq_open(fabric, &attributes, &events, NULL), "fi_eq_open");
    return found;
}

static void open_endpoint(struct fi_info *info, uint64_t access) {
    struct fi_cq_attr attributes = {.format = FI_CQ_FORMAT_CONTEXT, .size = 2 * WINDOW};
    must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    must(fi_endpoint(domain, info, &endpoint, NULL), "fi_endpoint");
    must(fi_cq_open(domain, &attributes, &completions, NULL), "fi_cq_open");
    must(fi_ep_bind(endpoint, &events->fid, 0), "fi_ep_bind");
    must(fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_enable(endpoint), "fi_enable");
    memory = calloc(1, size);
    must(fi_mr_reg(domain, memory, size, access, 0, 1, 0, &region, NULL), "fi_mr_reg");
}

/* Waits for an event of the connection; the room behind it holds the peer's private data. */
static struct fi_eq_cm_entry *expect(uint32_t wanted) {
    static char room[sizeof(struct fi_eq_cm_entry) + 256];
    uint32_t event;
    must(fi_eq_sread(events, &event, room, sizeof room, -1, 0), "fi_eq_sread");
    if (event != wanted) {
        fprintf(stderr, "event %u came instead of %u\n", event, wanted);
        exit(1);
    }
    return (struct fi_eq_cm_entry *)room;
}

static void serve(const char *address, const char *port) {
    struct fi_info *info = find(address, port, FI_SOURCE);
    struct fid_pep *listener;
    must(fi_passive_ep(fabric, info, &listener, NULL), "fi_passive_ep");
    must(fi_pep_bind(listener, &events->fid, 0), "fi_pep_bind");
    must(fi_listen(listener), "fi_listen");
    struct fi_info *request = expect(FI_CONNREQ)->info;
    open_endpoint(request, FI_REMOTE_WRITE);
    /* Without virtual addresses a target is addressed by its offset in the region. */
    int is_virtual = (request->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    struct target target = {is_virtual ? (uintptr_t)memory : 0, fi_mr_key(region)};
    must(fi_accept(endpoint, &target, sizeof target), "fi_accept");
    expect(FI_CONNECTED);
    /* Whatever the provider says of automatic progress, it moves data while it is polled. */
    struct fi_eq_cm_entry entry;
    struct fi_cq_entry completion;
    uint32_t event;
    while (fi_eq_read(events, &event, &entry, sizeof entry, 0) == -FI_EAGAIN)
        for (int i = 0; i < WINDOW; i++)
            fi_cq_read(completions, &completion, 1);
}

static void complete_one(void) {
    struct fi_cq_entry entry;
    ssize_t got;
    while ((got = fi_cq_read(completions, &entry, 1)) == -FI_EAGAIN)
        ;
    if (got == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(completions, &error, 0);
        fprintf(stderr, "fi_cq_read: %s\n", fi_strerror(error.err));
        exit(1);
    }
    must(got, "fi_cq_read");
}

static void write_all(const char *address, const char *port, long count) {
    struct fi_info *info = find(address, port, 0);
    open_endpoint(info, FI_WRITE);
    must(fi_connect(endpoint, info->dest_addr, NULL, 0), "fi_connect");
    struct target target;
    memcpy(&target, expect(FI_CONNECTED)->data, sizeof target);

    struct iovec local = {memory, size};
    void *descriptor = fi_mr_desc(region);
    struct fi_rma_iov remote = {target.address, size, target.key};
    struct fi_msg_rma message = {
        .msg_iov = &local, .desc = &descriptor, .iov_count = 1,
        .rma_iov = &remote, .rma_iov_count = 1,
    };
    long posted = 0, completed = 0;
    double began = now();
    while (completed < count) {
        /* The last one completes when everything lies in the server's memory. */
        uint64_t flags = FI_COMPLETION | (posted + 1 == count ? FI_DELIVERY_COMPLETE : 0);
        ssize_t result = -FI_EAGAIN;
        if (posted < count && posted - completed < WINDOW)
            result = fi_writemsg(endpoint, &message, flags);
        if (result == 0) {
            posted++;
        } else if (result == -FI_EAGAIN) {
            complete_one();
            completed++;
        } else {
            must(result, "fi_writemsg");
        }
    }
    printf("gbps %.4f\n", count * (double)size * 8 / (now() - began) / 1e9);
    must(fi_shutdown(endpoint, 0), "fi_shutdown");
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "serve") == 0) {
        size = strtoul(argv[4], NULL, 10);
        serve(argv[2], argv[3]);
    } else if (argc == 6 && strcmp(argv[1], "write") == 0) {
        size = strtoul(argv[4], NULL, 10);
        write_all(argv[2], argv[3], atol(argv[5]));
    } else {
        fprintf(stderr, "usage: fi_write serve|write ADDRESS PORT SIZE [COUNT]\n");
        return 2;
    }
    return 0;
}

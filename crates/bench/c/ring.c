/* The least that two processes of one host need to exchange bytes: a ring of memory that both map,
 * for each direction, and nothing but copies and polls.
 *
 *   ring listen|connect ADDRESS PORT SECONDS pingpong|stream BYTES
 *
 * pingpong: messages to and fro: {"us": half of a round trip, "p50": its median}.
 * stream:   messages one way, copied in and out: {"gbps": ..., "bytes": ...}.
 *
 * The two meet by TCP; the one that listens says there which descriptor holds the memory. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "trips.h"

enum { RING = 1 << 20, CHUNK = 1 << 15, LINE = 64, WARM_UP = 100 };

static const char MORE = 0, LAST = 1;

/* Bytes are counted from the beginning of time; each side keeps what it last saw of the other. */
struct ring {
    _Alignas(LINE) _Atomic uint64_t written;
    _Alignas(LINE) _Atomic uint64_t taken;
    _Alignas(LINE) char bytes[RING];
};

struct side {
    struct ring *out, *in;
    uint64_t written, taken, seen_taken, seen_written;
};

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

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static void put(struct side *s, const char *from, size_t bytes) {
    while (bytes > 0) {
        size_t room;
        while ((room = RING - (s->written - s->seen_taken)) == 0)
            s->seen_taken = atomic_load_explicit(&s->out->taken, memory_order_acquire);
        size_t at = s->written % RING;
        size_t part = least(least(bytes, room), least(RING - at, CHUNK));
        memcpy(s->out->bytes + at, from, part);
        s->written += part;
        atomic_store_explicit(&s->out->written, s->written, memory_order_release);
        from += part;
        bytes -= part;
    }
}

static void take(struct side *s, char *to, size_t bytes) {
    while (bytes > 0) {
        size_t there;
        while ((there = s->seen_written - s->taken) == 0)
            s->seen_written = atomic_load_explicit(&s->in->written, memory_order_acquire);
        size_t at = s->taken % RING;
        size_t part = least(least(bytes, there), least(RING - at, CHUNK));
        memcpy(to, s->in->bytes + at, part);
        s->taken += part;
        atomic_store_explicit(&s->in->taken, s->taken, memory_order_release);
        to += part;
        bytes -= part;
    }
}

static void serve_pingpong(struct side *s, char *message, size_t bytes) {
    do {
        take(s, message, bytes);
        put(s, message, bytes);
    } while (message[0] != LAST);
}

static double round_trip_us(struct side *s, char *message, size_t bytes, char what) {
    double began = now_s();
    message[0] = what;
    put(s, message, bytes);
    take(s, message, bytes);
    return (now_s() - began) * 1e6;
}

static void measure_pingpong(struct side *s, char *message, size_t bytes, double seconds) {
    for (int i = 0; i < WARM_UP; i++)
        round_trip_us(s, message, bytes, MORE);
    struct trips trips = {0};
    for (double began = now_s(); now_s() - began < seconds;)
        add_trip(&trips, round_trip_us(s, message, bytes, MORE));
    round_trip_us(s, message, bytes, LAST);
    print_trips(&trips);
}

static void serve_stream(struct side *s, char *message, size_t bytes) {
    do
        take(s, message, bytes);
    while (message[0] != LAST);
    put(s, &LAST, 1);
}

static void measure_stream(struct side *s, char *message, size_t bytes, double seconds) {
    /* The clock is read once for so many bytes. */
    size_t batch = 1 + RING / bytes;
    double began = now_s(), total = 0;
    message[0] = MORE;
    while (now_s() - began < seconds) {
        for (size_t i = 0; i < batch; i++)
            put(s, message, bytes);
        total += (double)batch * bytes;
    }
    message[0] = LAST;
    put(s, message, bytes);
    total += bytes;
    char answer;
    take(s, &answer, 1);
    printf("{\"gbps\": %.6f, \"bytes\": %.0f}\n", total * 8 / (now_s() - began) / 1e9, total);
}

/* Where the memory is: a descriptor of a process. */
struct place {
    pid_t pid;
    int fd;
};

static int offer(struct sockaddr_in address) {
    int memory = memfd_create("ring", MFD_CLOEXEC), listener = socket(AF_INET, SOCK_STREAM, 0);
    must(memory < 0 || ftruncate(memory, 2 * sizeof(struct ring)), "memfd_create");
    must(bind(listener, (struct sockaddr *)&address, sizeof address), "bind");
    must(listen(listener, 1), "listen");
    int socket = accept(listener, NULL, NULL);
    must(socket < 0, "accept");
    struct place place = {getpid(), memory};
    must(write(socket, &place, sizeof place) != sizeof place, "write");
    /* The other side closes the connection when it has the memory. */
    char byte;
    must(read(socket, &byte, 1) < 0, "read");
    return memory;
}

static int accept_offer(struct sockaddr_in address) {
    int server = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(server, (struct sockaddr *)&address, sizeof address), "connect");
    struct place place;
    must(read(server, &place, sizeof place) != sizeof place, "read");
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", place.pid, place.fd);
    int memory = open(path, O_RDWR);
    must(memory < 0, path);
    close(server);
    return memory;
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: ring listen|connect ADDRESS PORT SECONDS pingpong|stream BYTES\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
    must(inet_pton(AF_INET, argv[2], &address.sin_addr) != 1, argv[2]);
    int connects = strcmp(argv[1], "connect") == 0, stream = strcmp(argv[5], "stream") == 0;
    int memory = connects ? accept_offer(address) : offer(address);
    int access = PROT_READ | PROT_WRITE;
    struct ring *rings = mmap(NULL, 2 * sizeof *rings, access, MAP_SHARED, memory, 0);
    must(rings == MAP_FAILED, "mmap");
    struct side side = {.out = &rings[connects], .in = &rings[!connects]};
    size_t bytes = strtoul(argv[6], NULL, 10);
    char *message = calloc(1, bytes);
    must(message == NULL, "calloc");
    if (connects)
        (stream ? measure_stream : measure_pingpong)(&side, message, bytes, atof(argv[4]));
    else
        (stream ? serve_stream : serve_pingpong)(&side, message, bytes);
    return 0;
}

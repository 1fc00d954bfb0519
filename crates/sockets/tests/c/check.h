/* What the programs here have in common: they end at the first thing that is not as it must be. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What the ports of TCP and of iWARP differ by. */
enum { IWARP = 0x8000 };

#define CHECK(what)                                                                     \
	do {                                                                            \
		if (!(what)) {                                                          \
			fprintf(stderr, "%s:%d: %s: errno %d (%s)\n", __FILE__,         \
				__LINE__, #what, errno, strerror(errno));               \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

#define FAILS(call, error)                                                              \
	do {                                                                            \
		errno = 0;                                                              \
		CHECK((call) < 0 && errno == (error));                                  \
	} while (0)

/* The octet at a place of a stream. */
static inline uint8_t octet_at(uint64_t at) { return (uint8_t)(at * 167 + at / 251); }

static inline void fill(uint8_t *into, size_t octets, uint64_t from)
{
	for (size_t i = 0; i < octets; i++)
		into[i] = octet_at(from + i);
}

static inline void check_octets(const uint8_t *octets, size_t count, uint64_t from)
{
	for (size_t i = 0; i < count; i++)
		CHECK(octets[i] == octet_at(from + i));
}

/* Binds a socket to `at`, at a port that the kernel chooses, and puts that there. SDP listens by
 * UDP, or at the port's counterpart for iWARP, and leaves a listener to TCP where those are taken,
 * as by a connection of another test: so they are free too. */
static inline void bind_port(int fd, void *at, socklen_t len)
{
	in_port_t *port = &((struct sockaddr_in *)at)->sin_port;
	int family = ((struct sockaddr *)at)->sa_family, is_free;
	do {
		int shuttle = socket(family, SOCK_DGRAM, 0), iwarp = socket(family, SOCK_STREAM, 0);
		*port = 0;
		CHECK(bind(shuttle, at, len) == 0 && getsockname(shuttle, at, &len) == 0);
		*port ^= htons(IWARP);
		is_free = bind(iwarp, at, len) == 0;
		*port ^= htons(IWARP);
		is_free = is_free && bind(fd, at, len) == 0;
		CHECK(is_free || errno == EADDRINUSE || errno == EACCES);
		/* A thread that is cancelled ends in close(3). */
		syscall(SYS_close, shuttle);
		syscall(SYS_close, iwarp);
	} while (!is_free);
}

/* A socket that listens at a port of the loopback interface which the kernel chooses: `at`. */
static inline int listen_on_loopback(struct sockaddr_in *at)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	*at = (struct sockaddr_in){ .sin_family = AF_INET };
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind_port(listener, at, sizeof *at);
	CHECK(listen(listener, 16) == 0);
	return listener;
}

/* A listener that lets calls wait, at a port that the kernel chooses or at `port`; none if that is
 * taken. The calls go past the library, as those of a program that does not have it. */
static inline int full_listener(struct sockaddr_in *where, int port)
{
	socklen_t len = sizeof *where;
	int listener = socket(AF_INET, SOCK_STREAM, 0), first = socket(AF_INET, SOCK_STREAM, 0);
	*where = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
	where->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (void *)where, len) != 0)
		return -1;
	CHECK(syscall(SYS_listen, listener, 0) == 0);
	CHECK(getsockname(listener, (void *)where, &len) == 0);
	CHECK(syscall(SYS_connect, first, where, len) == 0);
	return listener;
}

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

/* A socket that listens at a port of the loopback interface which the kernel chooses: `at`. */
static inline int listen_on_loopback(struct sockaddr_in *at)
{
	socklen_t len = sizeof *at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	*at = (struct sockaddr_in){ .sin_family = AF_INET };
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(bind(listener, (void *)at, len) == 0 && listen(listener, 16) == 0);
	CHECK(getsockname(listener, (void *)at, &len) == 0);
	return listener;
}

/* Sockets that are watched by epoll while it is decided which way they go: `watched` calls a
 * listener of its own, sooner or later after which it begins to watch; each must be told that it
 * may be written to. */
#include "check.h"

#define CALLS 1500
#define SPREAD_NS 300000

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void *accept_all(void *listener)
{
	for (int i = 0; i < CALLS; i++) {
		/* Past the library, as a program that does not have it. */
		int fd = syscall(SYS_accept, *(int *)listener, NULL, NULL);
		CHECK(fd >= 0);
		syscall(SYS_close, fd);
	}
	return NULL;
}

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
	pthread_t server;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(epoll >= 0 && bind(listener, (void *)&at, len) == 0);
	CHECK(syscall(SYS_listen, listener, 64) == 0);
	CHECK(getsockname(listener, (void *)&at, &len) == 0);
	CHECK(pthread_create(&server, NULL, accept_all, &listener) == 0);
	for (int i = 0; i < CALLS; i++) {
		struct epoll_event event = { .events = EPOLLOUT | EPOLLET, .data.u64 = i };
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		FAILS(connect(fd, (void *)&at, len), EINPROGRESS);
		uint64_t until = now_ns() + (uint64_t)SPREAD_NS * i / CALLS;
		while (now_ns() < until)
			;
		CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
		CHECK(epoll_wait(epoll, &event, 1, 10000) == 1 && event.data.u64 == (uint64_t)i);
		close(fd);
	}
	return 0;
}

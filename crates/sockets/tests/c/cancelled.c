/* Threads that are cancelled before their calls: they end in none of those that do not wait, since
 * other threads need the locks that those calls hold; and in those that wait, as with the kernel's
 * sockets. Both ends of a connection are in one process. `cancelled silent` is about a thread that
 * waits for an answer by SDP. */
#include "check.h"

enum { ROUNDS = 20, WRITES = 20 };

static struct sockaddr_in at;
static int ends[2];
/* A thread with a cancellation before it is in such a call. */
static int is_inside;

static void *accept_one(void *listener)
{
	int fd = accept(*(int *)listener, NULL, NULL);
	CHECK(fd >= 0);
	return (void *)(intptr_t)fd;
}

/* Small writes take the library's own path, and the kernel's where that is busy: in the latter a
 * thread may end. */
static void *writes(void *fd)
{
	CHECK(pthread_cancel(pthread_self()) == 0);
	for (int i = 0; i < WRITES; i++)
		CHECK(write(*(int *)fd, "x", 1) == 1);
	pthread_testcancel();
	return NULL;
}

static void died(void *unused)
{
	(void)unused;
	if (is_inside) {
		fprintf(stderr, "a thread was cancelled in a call that does not wait\n");
		_exit(1);
	}
}

/* What the C library does without a call in which a thread may end. */
static void *listens(void *unused)
{
	struct sockaddr_in own;
	pthread_cleanup_push(died, unused);
	CHECK(pthread_cancel(pthread_self()) == 0);
	is_inside = 1;
	listen_on_loopback(&own);
	is_inside = 0;
	pthread_testcancel();
	pthread_cleanup_pop(0);
	return NULL;
}

/* The queue of this listener is full, so a connect waits until the thread is cancelled. */
static void *waits(void *to)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	connect(fd, to, sizeof at);
	return NULL;
}

/* A listener without the library, whose UDP port takes everything and says nothing. */
static int silent_listener(struct sockaddr_in *where)
{
	for (;;) {
		socklen_t len = sizeof *where;
		int listener = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0);
		*where = (struct sockaddr_in){ .sin_family = AF_INET };
		where->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		CHECK(bind(udp, (void *)where, len) == 0);
		CHECK(getsockname(udp, (void *)where, &len) == 0);
		if (bind(listener, (void *)where, len) == 0) {
			CHECK(syscall(SYS_listen, listener, 16) == 0);
			return listener;
		}
		close(listener);
		close(udp);
	}
}

/* What a thread cleans up with is no less than what it works with. */
static void clean_up(void *fd)
{
	int family;
	socklen_t len = sizeof family;
	CHECK(getsockopt(ends[0], SOL_SOCKET, SO_DOMAIN, &family, &len) == 0 && family == AF_INET);
	CHECK(close(*(int *)fd) == 0);
}

static void *waits_and_cleans_up(void *to)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	pthread_cleanup_push(clean_up, &fd);
	CHECK(pthread_cancel(pthread_self()) == 0);
	connect(fd, to, sizeof at);
	pthread_cleanup_pop(0);
	return NULL;
}

static void join_cancelled(pthread_t thread)
{
	void *result = NULL;
	CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

static void cancel_in(void *(*body)(void *), void *argument)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, body, argument) == 0);
	join_cancelled(thread);
}

static void connect_ends(int listener)
{
	pthread_t thread;
	void *fd;
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(pthread_create(&thread, NULL, accept_one, &listener) == 0);
	CHECK(connect(ends[0], (void *)&at, sizeof at) == 0);
	CHECK(pthread_join(thread, &fd) == 0);
	ends[1] = (intptr_t)fd;
}

static void cancel_waiting(void)
{
	struct sockaddr_in full;
	pthread_t thread;
	full_listener(&full, 0);
	CHECK(pthread_create(&thread, NULL, waits, &full) == 0);
	CHECK(pthread_cancel(thread) == 0);
	join_cancelled(thread);
}

/* Whoever has accepted the call sees its end once the thread has closed its socket. */
static void cancel_unanswered(void)
{
	struct sockaddr_in silent;
	char octet;
	int listener = silent_listener(&silent);
	cancel_in(waits_and_cleans_up, &silent);
	struct pollfd call = { listener, POLLIN, 0 };
	CHECK(poll(&call, 1, 10000) == 1);
	call.fd = syscall(SYS_accept, listener, NULL, NULL);
	CHECK(call.fd >= 0 && poll(&call, 1, 10000) == 1 && read(call.fd, &octet, 1) <= 0);
}

int main(int argc, char **argv)
{
	char octet;
	int listener = listen_on_loopback(&at);
	connect_ends(listener);
	if (argc > 1 && !strcmp(argv[1], "silent")) {
		cancel_unanswered();
		return 0;
	}
	for (int i = 0; i < ROUNDS; i++) {
		cancel_in(writes, &ends[0]);
		cancel_in(listens, NULL);
		/* The connection goes on, and so does the process. */
		CHECK(write(ends[0], "y", 1) == 1);
		do
			CHECK(read(ends[1], &octet, 1) == 1);
		while (octet != 'y');
	}
	cancel_waiting();
	connect_ends(listener);
	CHECK(write(ends[0], "z", 1) == 1 && read(ends[1], &octet, 1) == 1 && octet == 'z');
	return 0;
}

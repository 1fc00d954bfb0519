/* A thread that sleeps in poll while a connect over iWARP turns to TCP, whose answer is not there
 * yet: the queue of the listener is full when TCP calls, and has room when it calls again. */
#include "check.h"

enum { LIMIT_S = 20 };

static struct sockaddr_in at;

/* Whether a socket of this machine calls `at` and has no answer, as the kernel's table tells. */
static int is_called(void)
{
	const unsigned syn_sent = 2;
	char line[256];
	int found = 0;
	FILE *table = fopen("/proc/net/tcp", "r");
	CHECK(table);
	while (!found && fgets(line, sizeof line, table)) {
		unsigned port, state;
		found = sscanf(line, " %*d: %*x:%*x %*x:%x %x", &port, &state) == 2 &&
			port == ntohs(at.sin_port) && state == syn_sent;
	}
	fclose(table);
	return found;
}

/* Makes room for the call. */
static void *make_room(void *listener)
{
	while (!is_called())
		sched_yield();
	CHECK(syscall(SYS_accept, *(int *)listener, NULL, NULL) >= 0);
	return NULL;
}

int main(void)
{
	struct sockaddr_in iwarp;
	socklen_t len = sizeof at;
	pthread_t other;
	int error, listener, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct pollfd wanted = { fd, POLLOUT, 0 };
	do {
		listener = full_listener(&at, 0);
	} while (full_listener(&iwarp, ntohs(at.sin_port) ^ IWARP) < 0);
	FAILS(connect(fd, (void *)&at, len), EINPROGRESS);
	CHECK(pthread_create(&other, NULL, make_room, &listener) == 0);
	/* At its end poll looks once more, at whatever is open there then. */
	time_t until = time(NULL) + LIMIT_S;
	CHECK(poll(&wanted, 1, 1000 * LIMIT_S) == 1 && wanted.revents == POLLOUT);
	CHECK(time(NULL) < until);
	len = sizeof error;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
	CHECK(write(fd, "x", 1) == 1 && pthread_join(other, NULL) == 0);
	return 0;
}

/* An application that accepts a connection long after its library has granted it: its child says
 * by a pipe when it is connected. `granted before` and `granted after` set TCP_DEFER_ACCEPT before
 * the listener listens, or after; the caller of `granted fast` has TCP_FASTOPEN_CONNECT, and that
 * of `granted gone` has ended before its connection is accepted. */
#include "check.h"

/* Leaves the call to the first write, for which no cookie of the peer is needed. */
static void call_late(int fd)
{
	int on = 1;
	CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on));
	CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &on, sizeof on));
}

static int call(int port_of, int connected, const char *how)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char byte;
	if (!strcmp(how, "fast"))
		call_late(fd);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(read(port_of, &to.sin_port, sizeof to.sin_port) == sizeof to.sin_port);
	CHECK(connect(fd, (void *)&to, sizeof to) == 0);
	CHECK(write(connected, "c", 1) == 1);
	if (!strcmp(how, "gone")) {
		CHECK(write(fd, "c", 1) == 1 && close(fd) == 0);
		return 0;
	}
	CHECK(read(fd, &byte, 1) == 1 && byte == 's');
	CHECK(write(fd, "c", 1) == 1 && read(fd, &byte, 1) == 0);
	return 0;
}

/* The kernel would keep a connection without data from being accepted for so long. */
static void defer(int listener)
{
	int seconds = 30, found = 0;
	socklen_t len = sizeof found;
	CHECK(!setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds));
	CHECK(!getsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &found, &len));
	CHECK(found >= seconds && len == sizeof found);
}

/* Who takes the port for datagrams has a listener of the kernel alone, with all its options. */
static void take_port(int listener, const struct sockaddr_in *at)
{
	int datagrams = socket(AF_INET, SOCK_DGRAM, 0), found = 0;
	socklen_t len = sizeof found;
	CHECK(bind(datagrams, (void *)at, sizeof *at) == 0);
	CHECK(!syscall(SYS_getsockopt, listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &found, &len));
	CHECK(found >= 30);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof at;
	int port[2], connected[2], status, fd, listener;
	char byte;
	CHECK(pipe(port) == 0 && pipe(connected) == 0);
	pid_t child = fork();
	if (child == 0)
		return call(port[0], connected[1], how);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!strcmp(how, "before"))
		defer(listener);
	bind_port(listener, &at, len);
	CHECK(listen(listener, 16) == 0);
	if (!strcmp(how, "after"))
		defer(listener);
	CHECK(write(port[1], &at.sin_port, sizeof at.sin_port) == sizeof at.sin_port);
	CHECK(read(connected[0], &byte, 1) == 1);
	struct pollfd caller = { listener, POLLIN, 0 };
	CHECK(poll(&caller, 1, 10000) == 1);
	int is_gone = !strcmp(how, "gone");
	CHECK(!is_gone || (waitpid(child, &status, 0) == child && status == 0));
	fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0 && (is_gone || write(fd, "s", 1) == 1));
	CHECK(read(fd, &byte, 1) == 1 && byte == 'c');
	CHECK(close(fd) == 0);
	CHECK(is_gone || (waitpid(child, &status, 0) == child && status == 0));
	if (!strcmp(how, "before") || !strcmp(how, "after"))
		take_port(listener, &at);
	return 0;
}

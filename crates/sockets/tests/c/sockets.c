/* Both ends of every behaviour, in two processes: `sockets serve [6]` says its port on stderr and
 * serves one connection for each check; `sockets call PORT [6]` makes the checks in that order.
 * With `late` instead of `6` there are some of that check only.
 * The first octet that a caller sends says which one it is. */
#include "check.h"

#define BULK (6 << 20)

enum { ECHO = 1, PEEK, WAITALL, HALVES, URGENT, TIMES, DUP, FORK, VECTORS, RESET, SLOW, LATE,
       ORDER, LAST };

/* How often a check is made that is made alone. */
#define ALONE 3

static int v6, late;

static void write_all(int fd, const void *from, size_t octets)
{
	const uint8_t *at = from;
	while (octets > 0) {
		ssize_t n = write(fd, at, octets);
		CHECK(n > 0);
		at += n;
		octets -= n;
	}
}

static size_t read_all(int fd, void *into, size_t octets)
{
	size_t got = 0;
	while (got < octets) {
		ssize_t n = read(fd, (uint8_t *)into + got, octets - got);
		CHECK(n >= 0);
		if (n == 0)
			break;
		got += n;
	}
	return got;
}

static socklen_t loopback(struct sockaddr_storage *place, int port)
{
	memset(place, 0, sizeof *place);
	if (v6) {
		struct sockaddr_in6 *a = (void *)place;
		a->sin6_family = AF_INET6;
		a->sin6_addr = in6addr_loopback;
		a->sin6_port = htons(port);
		return sizeof *a;
	}
	struct sockaddr_in *a = (void *)place;
	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	a->sin_port = htons(port);
	return sizeof *a;
}

static int port_of(const struct sockaddr_storage *a)
{
	/* The port is at the same place in both. */
	return ntohs(((const struct sockaddr_in *)a)->sin_port);
}

/* ---- the server ---- */

static void serve_echo(int fd)
{
	static uint8_t buffer[1 << 16];
	ssize_t n;
	while ((n = recv(fd, buffer, sizeof buffer, 0)) > 0)
		write_all(fd, buffer, n);
	CHECK(n == 0);
}

static void serve_urgent(int fd)
{
	uint8_t buffer[16];
	struct pollfd p = { fd, POLLPRI, 0 };
	CHECK(poll(&p, 1, 5000) == 1 && p.revents & POLLPRI);
	CHECK(recv(fd, buffer, sizeof buffer, 0) == 3 && !memcmp(buffer, "abc", 3));
	CHECK(sockatmark(fd) == 1);
	CHECK(recv(fd, buffer, sizeof buffer, MSG_OOB) == 1 && buffer[0] == '!');
	CHECK(read_all(fd, buffer, 3) == 3 && !memcmp(buffer, "def", 3));
	CHECK(send(fd, "?", 1, MSG_OOB) == 1);
	serve_echo(fd);
}

/* Writes until there is no room anywhere. */
static void serve_full(int fd)
{
	static uint8_t part[10000];
	struct pollfd p = { fd, POLLOUT, 0 };
	size_t at = 0;
	CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	while (poll(&p, 1, 200) == 1) {
		fill(part, sizeof part, at);
		ssize_t n = write(fd, part, sizeof part);
		CHECK(n > 0 || errno == EAGAIN);
		at += n > 0 ? n : 0;
	}
}

static void serve_reset(int fd)
{
	/* Goes without reading what there is. */
	uint8_t octet;
	CHECK(recv(fd, &octet, 1, MSG_PEEK) == 1);
	close(fd);
}

static void serve_one(int listener)
{
	struct sockaddr_storage peer, again;
	socklen_t len = sizeof peer, again_len = sizeof again;
	int fd = accept(listener, (void *)&peer, &len);
	CHECK(fd >= 0);
	CHECK(getpeername(fd, (void *)&again, &again_len) == 0);
	CHECK(len == again_len && !memcmp(&peer, &again, len));
	uint8_t what;
	CHECK(recv(fd, &what, 1, 0) == 1);
	switch (what) {
	case FORK: {
		/* The child serves, and the parent lets go. */
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			close(listener);
			serve_echo(fd);
			exit(0);
		}
		close(fd);
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		return;
	}
	case TIMES:
		/* Says nothing until it is told to. */
		CHECK(recv(fd, &what, 1, 0) == 1);
		serve_echo(fd);
		break;
	case SLOW:
		/* Reads nothing until the other cannot write any more. */
		CHECK(usleep(1300000) == 0);
		serve_echo(fd);
		break;
	case LATE:
		/* Is gone before the other begins to read. */
		serve_full(fd);
		break;
	case URGENT:
		serve_urgent(fd);
		break;
	case RESET:
		serve_reset(fd);
		return;
	default:
		serve_echo(fd);
	}
	close(fd);
}

static int serve(void)
{
	struct sockaddr_storage at;
	socklen_t len = loopback(&at, 0);
	int listener = socket(at.ss_family, SOCK_STREAM, 0);
	bind_port(listener, &at, len);
	CHECK(listen(listener, 16) == 0);
	fprintf(stderr, "port %d\n", port_of(&at));
	for (int i = late ? LAST - ALONE : ECHO; i < LAST; i++)
		serve_one(listener);
	/* The last one's caller may still be reading. */
	sleep(late ? 2 : 0);
	return 0;
}

/* ---- the caller ---- */

static int call_blocking(int port, uint8_t what)
{
	struct sockaddr_storage to, from;
	socklen_t len = loopback(&to, port), from_len = sizeof from;
	int fd = socket(to.ss_family, SOCK_STREAM, 0);
	CHECK(fd >= 0 && connect(fd, (void *)&to, len) == 0);
	FAILS(connect(fd, (void *)&to, len), EISCONN);
	CHECK(getpeername(fd, (void *)&from, &from_len) == 0 && port_of(&from) == port);
	write_all(fd, &what, 1);
	return fd;
}

/* Connects without waiting; the socket is in an epoll instance before it is connected. */
static int call_nonblocking(int port, uint8_t what, int *epoll)
{
	struct sockaddr_storage to;
	socklen_t len = loopback(&to, port), error_len = sizeof(int);
	int error = -1, fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	*epoll = epoll_create1(0);
	struct epoll_event e = { EPOLLIN | EPOLLOUT | EPOLLET, { .u64 = 77 } };
	CHECK(fd >= 0 && epoll_ctl(*epoll, EPOLL_CTL_ADD, fd, &e) == 0);
	CHECK(epoll_wait(*epoll, &e, 1, 0) >= 0);
	FAILS(connect(fd, (void *)&to, len), EINPROGRESS);
	do {
		CHECK(epoll_wait(*epoll, &e, 1, 5000) == 1 && e.data.u64 == 77);
		CHECK(!(e.events & EPOLLERR));
	} while (!(e.events & EPOLLOUT));
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len) == 0 && error == 0);
	CHECK(write(fd, &what, 1) == 1);
	return fd;
}

/* Writes and reads so much at the same time, told by an edge-triggered epoll. */
static void echo_edges(int fd, int epoll)
{
	static uint8_t out[1 << 15], in[1 << 15];
	size_t sent = 0, got = 0;
	while (got < BULK) {
		int moved = 0;
		while (sent < BULK) {
			size_t n = BULK - sent < sizeof out ? BULK - sent : sizeof out;
			fill(out, n, sent);
			ssize_t done = send(fd, out, n, 0);
			if (done < 0) {
				CHECK(errno == EAGAIN);
				break;
			}
			sent += done;
			moved = 1;
			if (sent == BULK)
				CHECK(shutdown(fd, SHUT_WR) == 0);
		}
		for (;;) {
			ssize_t n = recv(fd, in, sizeof in, 0);
			if (n < 0) {
				CHECK(errno == EAGAIN);
				break;
			}
			if (n == 0)
				break;
			check_octets(in, n, got);
			got += n;
			moved = 1;
		}
		struct epoll_event e;
		if (!moved)
			CHECK(epoll_wait(epoll, &e, 1, 10000) == 1);
	}
	CHECK(got == BULK);
	struct epoll_event e;
	uint8_t octet;
	while (recv(fd, &octet, 1, 0) < 0)
		CHECK(errno == EAGAIN && epoll_wait(epoll, &e, 1, 5000) == 1);
}

static void check_echo(int port)
{
	int epoll, fd = call_nonblocking(port, ECHO, &epoll);
	echo_edges(fd, epoll);
	close(epoll);
	close(fd);
}

static void check_peek(int port)
{
	int fd = call_blocking(port, PEEK), there;
	char b[8];
	FAILS(recv(fd, b, 1, MSG_DONTWAIT), EAGAIN);
	write_all(fd, "hello", 5);
	struct pollfd p = { fd, POLLIN, 0 };
	CHECK(poll(&p, 1, 5000) == 1 && p.revents == POLLIN);
	CHECK(recv(fd, b, sizeof b, MSG_PEEK) == 5 && recv(fd, b, 2, MSG_PEEK) == 2);
	CHECK(ioctl(fd, FIONREAD, &there) == 0 && there == 5);
	CHECK(recv(fd, b, sizeof b, 0) == 5 && !memcmp(b, "hello", 5));
	int yes = 1, no = 0;
	CHECK(ioctl(fd, FIONBIO, &yes) == 0);
	FAILS(read(fd, b, 1), EAGAIN);
	CHECK(ioctl(fd, FIONBIO, &no) == 0);
	close(fd);
}

static void *drip(void *fd)
{
	for (int i = 0; i < 5; i++) {
		usleep(20000);
		write_all(*(int *)fd, "0123456789" + 2 * i, 2);
	}
	return NULL;
}

static void check_waitall(int port)
{
	int fd = call_blocking(port, WAITALL);
	char b[10];
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, drip, &fd) == 0);
	CHECK(recv(fd, b, 10, MSG_WAITALL) == 10 && !memcmp(b, "0123456789", 10));
	pthread_join(thread, NULL);
	close(fd);
}

static void check_halves(int port)
{
	int fd = call_blocking(port, HALVES);
	char b[8];
	write_all(fd, "last", 4);
	CHECK(shutdown(fd, SHUT_WR) == 0);
	signal(SIGPIPE, SIG_IGN);
	FAILS(write(fd, "x", 1), EPIPE);
	CHECK(read_all(fd, b, 8) == 4 && !memcmp(b, "last", 4));
	struct pollfd p = { fd, POLLIN | POLLRDHUP, 0 };
	CHECK(poll(&p, 1, 5000) == 1 && p.revents & POLLRDHUP && p.revents & POLLHUP);
	CHECK(read(fd, b, 1) == 0);
	close(fd);
}

static void check_urgent(int port)
{
	int fd = call_blocking(port, URGENT);
	char b[4];
	CHECK(send(fd, "abc", 3, 0) == 3 && send(fd, "!", 1, MSG_OOB) == 1);
	CHECK(send(fd, "def", 3, 0) == 3);
	fd_set priority;
	FD_ZERO(&priority);
	FD_SET(fd, &priority);
	struct timeval limit = { 5, 0 };
	CHECK(select(fd + 1, NULL, NULL, &priority, &limit) == 1);
	CHECK(recv(fd, b, 1, MSG_OOB) == 1 && b[0] == '?');
	CHECK(shutdown(fd, SHUT_WR) == 0 && recv(fd, b, 1, 0) == 0);
	close(fd);
}

static void check_times(int port)
{
	int fd = call_blocking(port, TIMES), big = 0;
	socklen_t len = sizeof big;
	char b[4];
	struct timeval limit = { 0, 100000 };
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
	FAILS(recv(fd, b, 1, 0), EAGAIN);
	fd_set readable, writable;
	FD_ZERO(&readable);
	FD_ZERO(&writable);
	FD_SET(fd, &readable);
	FD_SET(fd, &writable);
	struct timeval zero = { 0, 0 };
	CHECK(select(fd + 1, &readable, &writable, NULL, &zero) == 1);
	CHECK(FD_ISSET(fd, &writable) && !FD_ISSET(fd, &readable));
	write_all(fd, "gecho", 5);
	limit.tv_sec = 5;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	CHECK(recv(fd, b, 4, MSG_WAITALL) == 4 && !memcmp(b, "echo", 4));
	/* Options of TCP and of sockets are what they are there. */
	int on = 1, kind = 0;
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
	on = 0;
	CHECK(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len) == 0 && on != 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &len) == 0 && kind == SOCK_STREAM);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &kind, &len) == 0);
	CHECK(kind == (v6 ? AF_INET6 : AF_INET));
	CHECK(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &kind, &len) == 0 && kind == IPPROTO_TCP);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &big, &len) == 0 && big > 0);
	close(fd);
}

static void check_dup(int port)
{
	int fd = call_blocking(port, DUP), other = dup(fd), third = fcntl(fd, F_DUPFD, 100);
	struct sockaddr_storage peer;
	socklen_t len = sizeof peer;
	char b[8];
	CHECK(other >= 0 && third >= 100 && close(fd) == 0);
	CHECK(getpeername(third, (void *)&peer, &len) == 0 && port_of(&peer) == port);
	write_all(other, "one", 3);
	CHECK(dup2(third, fd) == fd && close(other) == 0 && close(third) == 0);
	write_all(fd, "two", 3);
	/* A child has it too. */
	pid_t child = fork();
	if (child == 0) {
		write_all(fd, "!!", 2);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(recv(fd, b, 8, MSG_WAITALL) == 8 && !memcmp(b, "onetwo!!", 8));
	close(fd);
}

static void check_fork(int port)
{
	int fd = call_blocking(port, FORK);
	char b[5];
	write_all(fd, "child", 5);
	CHECK(recv(fd, b, 5, MSG_WAITALL) == 5 && !memcmp(b, "child", 5));
	close(fd);
}

static void check_vectors(int port)
{
	int fd = call_blocking(port, VECTORS);
	char a[3], b[5], c[4];
	struct iovec out[2] = { { "scatter", 7 }, { "ed...", 5 } };
	struct iovec in[3] = { { a, 3 }, { b, 5 }, { c, 4 } };
	CHECK(writev(fd, out, 2) == 12);
	struct msghdr m = { .msg_iov = in, .msg_iovlen = 3 };
	CHECK(recvmsg(fd, &m, MSG_WAITALL) == 12);
	CHECK(!memcmp(a, "sca", 3) && !memcmp(b, "ttere", 5) && !memcmp(c, "d...", 4));
	struct mmsghdr many[2] = { { { .msg_iov = out, .msg_iovlen = 1 } },
				   { { .msg_iov = out + 1, .msg_iovlen = 1 } } };
	CHECK(sendmmsg(fd, many, 2, 0) == 2 && many[0].msg_len == 7 && many[1].msg_len == 5);
	CHECK(readv(fd, in, 1) == 3 && read_all(fd, b, 5) == 5 && read_all(fd, c, 4) == 4);
	/* From a file. */
	char name[] = "/tmp/weft-sockets-XXXXXX";
	int file = mkstemp(name);
	static uint8_t content[100000], back[100000];
	fill(content, sizeof content, 0);
	unlink(name);
	write_all(file, content, sizeof content);
	off_t at = 0;
	while (at < (off_t)sizeof content)
		CHECK(sendfile(fd, file, &at, sizeof content - at) > 0);
	CHECK(read_all(fd, back, sizeof back) == sizeof back);
	check_octets(back, sizeof back, 0);
	struct sockaddr_storage peer;
	socklen_t len = loopback(&peer, port);
	CHECK(sendto(fd, "x", 1, 0, (void *)&peer, len) == 1 && read_all(fd, b, 1) == 1);
	close(fd);
}

/* Writes by one of the ways that there are; the second does not pass the C library. */
static ssize_t write_by(int way, int fd, void *from, size_t octets)
{
	struct iovec parts[2] = { { from, octets / 3 }, { from + octets / 3, octets - octets / 3 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	switch (way % 5) {
	case 0:
		return write(fd, from, octets);
	case 1:
		return syscall(SYS_write, fd, from, octets);
	case 2:
		return writev(fd, parts, 2);
	case 3:
		return send(fd, from, octets, MSG_NOSIGNAL);
	default:
		return sendmsg(fd, &message, 0);
	}
}

#define ORDERED 3000000

static void *write_ordered(void *place)
{
	static uint8_t all[ORDERED];
	size_t at = 0, octets = 1;
	fill(all, sizeof all, 0);
	for (int way = 0; at < sizeof all; way++) {
		octets = octets * 7 % 40009;
		size_t part = octets < sizeof all - at ? octets : sizeof all - at;
		ssize_t n = write_by(way, *(int *)place, all + at, part);
		CHECK(n > 0);
		at += n;
	}
	return NULL;
}

/* However a program writes, and whichever of its processes, it is one stream. */
static void check_order(int port)
{
	static uint8_t back[ORDERED];
	int fd = call_blocking(port, ORDER), turns[2], back_turns[2];
	uint8_t octet;
	pthread_t writer;
	CHECK(pthread_create(&writer, NULL, write_ordered, &fd) == 0);
	CHECK(read_all(fd, back, sizeof back) == sizeof back);
	check_octets(back, sizeof back, 0);
	CHECK(pthread_join(writer, NULL) == 0);
	CHECK(pipe(turns) == 0 && pipe(back_turns) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	for (int i = child == 0; i < 200; i += 2) {
		/* This one's turn; then the other's. */
		if (i > 0)
			CHECK(read(child ? back_turns[0] : turns[0], &octet, 1) == 1);
		octet = i;
		CHECK(write(fd, &octet, 1) == 1);
		CHECK(write(child ? turns[1] : back_turns[1], &octet, 1) == 1);
	}
	if (child == 0)
		_exit(0);
	CHECK(read_all(fd, back, 200) == 200);
	for (int i = 0; i < 200; i++)
		CHECK(back[i] == i);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	for (int i = 0; i < 2; i++)
		CHECK(close(turns[i]) == 0 && close(back_turns[i]) == 0);
	close(fd);
}

static void check_reset(int port)
{
	int fd = call_blocking(port, RESET);
	char b[8];
	write_all(fd, "unread", 6);
	ssize_t n = recv(fd, b, sizeof b, 0);
	CHECK(n < 0 && errno == ECONNRESET);
	close(fd);
}

static void check_slow(int port)
{
	int epoll, fd = call_nonblocking(port, SLOW, &epoll);
	echo_edges(fd, epoll);
	close(epoll);
	close(fd);
}

static void check_late(int port)
{
	static uint8_t part[50000];
	int fd = call_blocking(port, LATE);
	struct timeval limit = { 20, 0 };
	size_t got = 0;
	ssize_t n;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	CHECK(usleep(1500000) == 0);
	while ((n = read(fd, part, sizeof part)) > 0) {
		check_octets(part, n, got);
		got += n;
	}
	CHECK(n == 0 && got > 100000);
	close(fd);
}

static int call(int port)
{
	void (*checks[])(int) = { [ECHO] = check_echo,       [PEEK] = check_peek,
				  [WAITALL] = check_waitall, [HALVES] = check_halves,
				  [URGENT] = check_urgent,   [TIMES] = check_times,
				  [DUP] = check_dup,         [FORK] = check_fork,
				  [VECTORS] = check_vectors, [RESET] = check_reset,
				  [SLOW] = check_slow,       [LATE] = check_late,
				  [ORDER] = check_order };
	for (int i = late ? LAST - ALONE : ECHO; i < LAST; i++)
		checks[late ? LATE : i](port);
	return 0;
}

int main(int argc, char **argv)
{
	v6 = !strcmp(argv[argc - 1], "6");
	late = !strcmp(argv[argc - 1], "late");
	if (!strcmp(argv[1], "serve"))
		return serve();
	return call(atoi(argv[2]));
}

/* What an application of one host has of TCP at a pair: `pairs tcp` checks addresses and options,
 * `pairs special` makes connections that a pair could not carry as TCP does, `pairs ends`
 * ends listeners that are called, `pairs exec` executes itself with a connection, and `pairs many`
 * accepts by several processes at once. Both ends are of this program. */
#include "check.h"

#define WORKERS 4
#define CALLS 200

static struct sockaddr_in6 to;

static int listen_at(int backlog)
{
	int no = 0, fd = socket(AF_INET6, SOCK_STREAM, 0);
	to = (struct sockaddr_in6){ .sin6_family = AF_INET6 };
	CHECK(fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0);
	bind_port(fd, &to, sizeof to);
	CHECK(listen(fd, backlog) == 0);
	return fd;
}

/* Connects by IPv4 to a listener of IPv6. */
static int call(int fd)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = to.sin6_port };
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return connect(fd, (void *)&at, sizeof at);
}

static void exchange(int one, int other)
{
	char b;
	CHECK(write(one, "a", 1) == 1 && read(other, &b, 1) == 1 && b == 'a');
	CHECK(write(other, "b", 1) == 1 && read(one, &b, 1) == 1 && b == 'b');
}

/* TCP gives no address with what it receives. */
static void receive_with_address(int one, int other)
{
	struct sockaddr_in6 from;
	socklen_t len = sizeof from;
	char b;
	struct iovec into = { &b, 1 };
	struct mmsghdr many = { .msg_hdr = { .msg_iov = &into, .msg_iovlen = 1 } };
	struct msghdr *message = &many.msg_hdr;
	memset(&from, 7, sizeof from);
	CHECK(write(one, "xyz", 3) == 3);
	CHECK(recvfrom(other, &b, 1, 0, (void *)&from, &len) == 1 && b == 'x' && len == 0);
	message->msg_name = &from, message->msg_namelen = sizeof from;
	CHECK(recvmsg(other, message, 0) == 1 && b == 'y');
	CHECK(message->msg_name == &from && message->msg_namelen == 0 && from.sin6_port == 0x0707);
	message->msg_namelen = sizeof from;
	CHECK(recvmmsg(other, &many, 1, 0, NULL) == 1 && b == 'z' && message->msg_namelen == 0);
}

/* Who executes another program closes what that is not to have, with its parent's memory. */
static void close_as_a_child_does(int fd)
{
	int status;
	pid_t child = vfork();
	if (child == 0) {
		close(fd);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* However a listener ends, those who wait for it learn of that. */
static void end_while_called(int how)
{
	int listener = listen_at(16), fd = socket(AF_INET, SOCK_STREAM, 0), other;
	char b;
	CHECK(call(fd) == 0);
	switch (how) {
	case 0:
		CHECK(shutdown(listener, SHUT_RDWR) == 0);
		break;
	case 1:
		CHECK((other = open("/dev/null", O_RDONLY)) >= 0 && dup2(other, listener) == listener);
		CHECK(close(other) == 0);
		break;
	case 2:
		CHECK(close_range(listener, listener, 0) == 0 || errno == ENOSYS);
		break;
	default:
		CHECK(close(listener) == 0);
	}
	if (how == 2)
		close(listener);
	CHECK(read(fd, &b, 1) <= 0 && close(fd) == 0);
	if (how < 2)
		CHECK(close(listener) == 0);
}

static int get(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof value;
	CHECK(getsockopt(fd, level, name, &value, &len) == 0);
	return value;
}

static void set(int fd, int level, int name, int value)
{
	CHECK(setsockopt(fd, level, name, &value, sizeof value) == 0);
}

static void check_tcp(void)
{
	int listener = listen_at(16), fd = socket(AF_INET, SOCK_STREAM, 0), other;
	struct sockaddr_in here, there;
	struct sockaddr_in6 accepted, own, peer;
	struct tcp_info info;
	socklen_t len = sizeof here, len6 = sizeof own, info_len = sizeof info;
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 77);
	close_as_a_child_does(listener);
	CHECK(call(fd) == 0 && (other = accept(listener, (void *)&accepted, &len6)) >= 0);
	CHECK(getsockname(fd, (void *)&here, &len) == 0 && here.sin_family == AF_INET);
	CHECK(getpeername(fd, (void *)&there, &len) == 0 && there.sin_port == to.sin6_port);
	CHECK(getsockname(other, (void *)&own, &len6) == 0 && own.sin6_port == to.sin6_port);
	CHECK(getpeername(other, (void *)&peer, &len6) == 0 && peer.sin6_port == here.sin_port);
	CHECK(!memcmp(&peer, &accepted, sizeof peer) && IN6_IS_ADDR_V4MAPPED(&own.sin6_addr));
	CHECK(get(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET);
	CHECK(get(other, SOL_SOCKET, SO_DOMAIN) == AF_INET6);
	CHECK(get(fd, IPPROTO_TCP, TCP_NODELAY) && get(fd, SOL_SOCKET, SO_KEEPALIVE));
	CHECK(get(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 77 && !get(other, IPPROTO_TCP, TCP_NODELAY));
	set(other, IPPROTO_TCP, TCP_KEEPCNT, 5);
	set(other, IPPROTO_IPV6, IPV6_TCLASS, 8);
	CHECK(get(other, IPPROTO_TCP, TCP_KEEPCNT) == 5);
	CHECK(get(other, IPPROTO_IPV6, IPV6_TCLASS) == 8);
	CHECK(getsockopt(other, IPPROTO_TCP, TCP_INFO, &info, &info_len) == 0);
	CHECK(info.tcpi_state == TCP_ESTABLISHED);
	FAILS(call(fd), EISCONN);
	exchange(fd, other);
	receive_with_address(fd, other);
	/* The kernel says that the other end has gone, with bytes unread. */
	struct pollfd unread = { .fd = other, .events = POLLIN };
	CHECK(write(fd, "c", 1) == 1 && poll(&unread, 1, -1) == 1 && close(other) == 0);
	FAILS(read(fd, &info, 1), ECONNRESET);
}

static ssize_t greet(int fd, int way)
{
	struct iovec part = { "hello", 5 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	switch (way) {
	case 0:
		return write(fd, "hello", 5);
	case 1:
		return send(fd, "hello", 5, 0);
	case 2:
		return sendto(fd, "hello", 5, 0, NULL, 0);
	case 3:
		return writev(fd, &part, 1);
	default:
		return sendmsg(fd, &message, 0);
	}
}

/* A server that greets a caller which has gone goes on, as with TCP, whose next write fails. */
static void check_late(void)
{
	int listener = listen_at(16), fd, other;
	for (int way = 0; way < 7; way++) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(call(fd) == 0 && (other = accept(listener, NULL, NULL)) >= 0);
		/* Bytes that are not read make the close a reset. */
		struct pollfd unread = { fd, POLLIN, 0 };
		if (way == 6)
			CHECK(greet(other, 0) == 5 && poll(&unread, 1, -1) == 1);
		struct pollfd end = { other, POLLHUP | POLLRDHUP, 0 };
		CHECK(close(fd) == 0 && poll(&end, 1, -1) == 1);
		if (way == 5)
			CHECK(shutdown(other, SHUT_WR) == 0);
		else if (way == 6)
			FAILS(greet(other, 0), ECONNRESET);
		else
			CHECK(greet(other, way) == 5);
		signal(SIGPIPE, SIG_IGN);
		FAILS(greet(other, way), EPIPE);
		signal(SIGPIPE, SIG_DFL);
		CHECK(close(other) == 0);
	}
}

static void check_special(void)
{
	int listener = listen_at(0), fd = socket(AF_INET, SOCK_STREAM, 0), other;
	struct linger reset = { 1, 0 };
	CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
	CHECK(call(fd) == 0 && (other = accept(listener, NULL, NULL)) >= 0);
	exchange(fd, other);
	int owned = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fcntl(owned, F_SETOWN, getpid()) == 0);
	CHECK(call(owned) == 0 && (other = accept(listener, NULL, NULL)) >= 0);
	exchange(owned, other);
	/* The listener's queue has room for one, and the second is not connected yet. */
	int first = socket(AF_INET, SOCK_STREAM, 0);
	int second = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK(call(first) == 0);
	FAILS(call(second), EINPROGRESS);
	CHECK((other = accept(listener, NULL, NULL)) >= 0);
	exchange(first, other);
	struct pollfd p = { second, POLLOUT, 0 };
	CHECK(poll(&p, 1, 20000) == 1 && get(second, SOL_SOCKET, SO_ERROR) == 0);
	CHECK((other = accept(listener, NULL, NULL)) >= 0);
	CHECK(fcntl(second, F_SETFL, 0) == 0);
	exchange(second, other);
}

static void check_exec(char *self)
{
	int listener = listen_at(16), fd = socket(AF_INET, SOCK_STREAM, 0), other;
	char one[16], two[16];
	CHECK(call(fd) == 0 && (other = accept(listener, NULL, NULL)) >= 0);
	snprintf(one, sizeof one, "%d", fd);
	snprintf(two, sizeof two, "%d", other);
	execl(self, self, one, two, NULL);
	CHECK(!"it is executed");
}

static void check_many(void)
{
	int listener = listen_at(64), fds[20], status;
	for (int i = 0; i < WORKERS; i++) {
		if (fork() != 0)
			continue;
		for (;;) {
			char b;
			int fd = accept(listener, NULL, NULL);
			CHECK(fd >= 0 && read(fd, &b, 1) == 1);
			if (b == 'q')
				exit(0);
			CHECK(write(fd, &b, 1) == 1 && close(fd) == 0);
		}
	}
	for (int done = 0; done < CALLS; done += 20) {
		for (int i = 0; i < 20; i++) {
			char b = i;
			CHECK((fds[i] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
			CHECK(call(fds[i]) == 0 && write(fds[i], &b, 1) == 1);
		}
		for (int i = 0; i < 20; i++) {
			char b;
			CHECK(read(fds[i], &b, 1) == 1 && b == i);
			CHECK(read(fds[i], &b, 1) == 0 && close(fds[i]) == 0);
		}
	}
	for (int i = 0; i < WORKERS; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(call(fd) == 0 && write(fd, "q", 1) == 1 && wait(&status) > 0 && status == 0);
		close(fd);
	}
}

int main(int argc, char **argv)
{
	if (argc == 3)
		exchange(atoi(argv[1]), atoi(argv[2]));
	else if (!strcmp(argv[1], "tcp"))
		check_tcp();
	else if (!strcmp(argv[1], "late"))
		check_late();
	else if (!strcmp(argv[1], "special"))
		check_special();
	else if (!strcmp(argv[1], "ends"))
		for (int how = 0; how < 4; how++)
			end_while_called(how);
	else if (!strcmp(argv[1], "exec"))
		check_exec(argv[0]);
	else
		check_many();
	return 0;
}

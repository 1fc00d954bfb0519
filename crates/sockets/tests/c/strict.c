/* A listener and a caller that say which of them hears of the other.
 *
 * `strict serve ADDRESS COUNT` says its port on stderr, serves COUNT connections, each of which it
 * sends back what comes, and says how many it served. `strict call ADDRESS PORT HOW` connects in
 * the manner HOW, and says whether what it sent came back, or how the connection failed. */
#include "check.h"

static struct sockaddr_in address(const char *ip, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	CHECK(inet_pton(AF_INET, ip, &a.sin_addr) == 1);
	return a;
}

static int serve(const char *ip, int count)
{
	struct sockaddr_in at = address(ip, 0);
	socklen_t len = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	bind_port(listener, &at, len);
	CHECK(listen(listener, 16) == 0);
	fprintf(stderr, "port %d\n", ntohs(at.sin_port));
	for (int i = 0; i < count; i++) {
		char b[64];
		ssize_t n;
		struct sockaddr_in peer;
		len = sizeof peer;
		int fd = accept(listener, (void *)&peer, &len);
		CHECK(fd >= 0 && len == sizeof peer && peer.sin_family == AF_INET);
		fprintf(stderr, "served %d\n", i);
		while ((n = read(fd, b, sizeof b)) > 0)
			CHECK(write(fd, b, n) == n);
		close(fd);
	}
	return 0;
}

static int report(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, error ? strerrorname_np(error) : "none");
	return 0;
}

static int error_of(int fd)
{
	int error = -1;
	socklen_t len = sizeof error;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
	return error;
}

static int exchange(int fd)
{
	char b[5];
	if (fcntl(fd, F_SETFL, 0) != 0 || write(fd, "hello", 5) != 5)
		return report("write", errno);
	if (recv(fd, b, 5, MSG_WAITALL) != 5)
		return report("read", errno);
	CHECK(!memcmp(b, "hello", 5));
	return report("exchanged", 0);
}

static int poll_for(int fd)
{
	struct pollfd p = { fd, POLLOUT, 0 };
	CHECK(poll(&p, 1, 30000) == 1);
	return error_of(fd);
}

static int epoll_for(int fd, int instance)
{
	struct epoll_event event;
	CHECK(epoll_wait(instance, &event, 1, 30000) == 1);
	CHECK(event.data.fd == fd);
	return error_of(fd);
}

static void ignore(int signal) { (void)signal; }

/* Interrupts what waits, again and again: the first time may be too early. */
static void interrupt_every(int microseconds)
{
	struct sigaction action = { .sa_handler = ignore };
	struct itimerval times = { { 0, microseconds }, { 0, microseconds } };
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &times, NULL) == 0);
}

/* A child waits for the socket that its parent is connecting. */
static int watch_in_child(int fd)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct pollfd p = { fd, POLLOUT, 0 };
		CHECK(poll(&p, 1, 30000) == 1);
		CHECK(p.revents & (POLLERR | POLLHUP));
		CHECK(write(fd, "x", 1) < 0);
		_exit(0);
	}
	int error = poll_for(fd);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return error;
}

static int call(const char *ip, int port, const char *how)
{
	struct sockaddr_in to = address(ip, port);
	struct epoll_event event = { .events = EPOLLOUT };
	int fd = socket(AF_INET, SOCK_STREAM, 0), instance = epoll_create1(0), error = 0;
	signal(SIGPIPE, SIG_IGN);
	if (!strcmp(how, "fast")) {
		ssize_t n = sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&to, sizeof to);
		return report("sendto", n < 0 ? errno : 0);
	}
	int waits = !strcmp(how, "wait"), alarmed = !strcmp(how, "alarm") || !strcmp(how, "again");
	if (!waits && !alarmed)
		CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	event.data.fd = fd;
	if (!strcmp(how, "epoll"))
		CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event) == 0);
	if (alarmed)
		interrupt_every(200000);
	int done = connect(fd, (void *)&to, sizeof to);
	if (waits)
		error = done < 0 ? errno : 0;
	else if (alarmed) {
		CHECK(done < 0 && errno == EINTR);
		interrupt_every(0);
		if (!strcmp(how, "alarm"))
			error = poll_for(fd);
		else if (connect(fd, (void *)&to, sizeof to) < 0)
			error = errno;
	} else {
		CHECK(done < 0 && errno == EINPROGRESS);
		if (!strcmp(how, "poll"))
			error = poll_for(fd);
		else if (!strcmp(how, "epoll"))
			error = epoll_for(fd, instance);
		else if (!strcmp(how, "child"))
			error = watch_in_child(fd);
		else
			CHECK(!"a manner");
	}
	return error ? report("connect", error) : exchange(fd);
}

int main(int argc, char **argv)
{
	CHECK(argc >= 4);
	if (!strcmp(argv[1], "serve"))
		return serve(argv[2], atoi(argv[3]));
	CHECK(argc == 5);
	return call(argv[2], atoi(argv[3]), argv[4]);
}

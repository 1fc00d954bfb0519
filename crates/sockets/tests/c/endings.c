/* Processes that end with a connection, or a connection that ends: `endings serve exit`, `killed`,
 * `reset`, `half` and so on say their port on stderr; `endings call PORT exit` and so on finds out
 * what the other end sees. */
#include "check.h"

#define OCTETS (3 << 20)
/* More than the peer has room for, by as much as it reads in its first SLOW_SECONDS, and more. */
#define SLOW_OCTETS (5 << 20)
#define SLOW_SECONDS 70
#define SLOW_RATE (16 << 10)

static uint8_t octets[SLOW_OCTETS];

static void write_all(int fd, size_t count)
{
	fill(octets, count, 0);
	for (size_t done = 0; done < count;) {
		ssize_t n = write(fd, octets + done, count - done);
		CHECK(n > 0);
		done += n;
	}
}

/* Closes with bytes that the caller takes its time for, and lives until it has them. */
static int serve_slowly(int listener, int fd)
{
	write_all(fd, SLOW_OCTETS);
	CHECK(close(fd) == 0);
	CHECK(accept(listener, NULL, NULL) >= 0);
	return 0;
}

static int read_slowly(int fd, struct sockaddr_in *to)
{
	size_t got = 0;
	ssize_t n;
	for (int second = 0; second < SLOW_SECONDS; second++) {
		CHECK(recv(fd, octets, SLOW_RATE, MSG_WAITALL) == SLOW_RATE);
		check_octets(octets, SLOW_RATE, got);
		got += SLOW_RATE;
		sleep(1);
	}
	while ((n = read(fd, octets, sizeof octets)) > 0) {
		check_octets(octets, n, got);
		got += n;
	}
	CHECK(n == 0 && got == SLOW_OCTETS);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(fd, (void *)to, sizeof *to) == 0);
	return 0;
}

static int serve(const char *how)
{
	struct sockaddr_in at;
	int fd, listener = listen_on_loopback(&at);
	struct linger linger = { 1, 0 };
	if (!strcmp(how, "inherited"))
		CHECK(setsockopt(listener, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
	/* Descriptors of the library are out of the way. */
	CHECK(dup(listener) == listener + 1 && close(listener + 1) == 0);
	fprintf(stderr, "port %d\n", ntohs(at.sin_port));
	fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0);
	if (!strcmp(how, "slow"))
		return serve_slowly(listener, fd);
	if (!strcmp(how, "caller")) {
		/* The caller is killed with bytes unread: what it wrote is there, and then the reset. */
		char octet;
		CHECK(write(fd, "xx", 2) == 2 && read(fd, &octet, 1) == 1);
		FAILS(read(fd, &octet, 1), ECONNRESET);
		return 0;
	}
	if (strcmp(how, "exit")) {
		char octet;
		CHECK(write(fd, "x", 1) == 1 && read(fd, &octet, 1) == 1);
	}
	if (!strcmp(how, "inherited"))
		exit(close(fd));
	if (!strcmp(how, "reset")) {
		CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
		CHECK(close(fd) == 0);
		exit(0);
	}
	if (!strcmp(how, "half")) {
		/* The caller has ended its half, and finds the reset nevertheless. */
		char octet;
		CHECK(read(fd, &octet, 1) == 0);
		CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
		return close(fd);
	}
	if (!strcmp(how, "halves")) {
		char octet;
		CHECK(read(fd, &octet, 1) == 0);
		return close(fd);
	}
	if (!strcmp(how, "killed") || !strcmp(how, "unread")) {
		/* The parent of this one should see it end well. */
		if (fork() == 0) {
			kill(getppid(), SIGKILL);
			_exit(0);
		}
		for (;;)
			pause();
	}
	write_all(fd, OCTETS);
	_exit(0);
}

static int call(int port, const char *how)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	ssize_t n;
	size_t got = 0;
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(connect(fd, (void *)&to, sizeof to) == 0);
	if (!strcmp(how, "slow"))
		return read_slowly(fd, &to);
	if (!strcmp(how, "caller")) {
		CHECK(read(fd, octets, 1) == 1 && write(fd, "y", 1) == 1);
		struct pollfd unread = { fd, POLLIN, 0 };
		CHECK(poll(&unread, 1, -1) == 1);
		usleep(100000);
		return 0;
	}
	if (!strncmp(how, "hal", 3)) {
		CHECK(read(fd, octets, 1) == 1 && write(fd, "y", 1) == 1);
		CHECK(shutdown(fd, SHUT_WR) == 0);
	}
	if (!strcmp(how, "half")) {
		FAILS(read(fd, octets, 1), ECONNRESET);
		return 0;
	}
	if (!strcmp(how, "halves")) {
		for (int i = 0; i < 1000; i++) {
			CHECK(read(fd, octets, 1) == 0);
			sched_yield();
		}
		return 0;
	}
	if (strcmp(how, "exit")) {
		/* The kernel resets only where something is unread. */
		int count = strcmp(how, "unread") ? 1 : 2;
		CHECK(read(fd, octets, 1) == 1 && write(fd, "yy", count) == count);
		FAILS(read(fd, octets, 1), ECONNRESET);
		return 0;
	}
	usleep(200000);
	while ((n = read(fd, octets, OCTETS)) > 0) {
		check_octets(octets, n, got);
		got += n;
	}
	CHECK(n == 0 && got == OCTETS);
	return 0;
}

int main(int argc, char **argv)
{
	CHECK(argc >= 3);
	return strcmp(argv[1], "serve") ? call(atoi(argv[2]), argv[3]) : serve(argv[2]);
}

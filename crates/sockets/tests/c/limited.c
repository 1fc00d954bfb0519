/* A process that accepts with its last descriptor: it is told that there is none left, as by the
 * kernel, or has a connection with its peer, which finds the end of one that it does not have.
 * `limited granted` is for callers by SDP, `limited offered` for those by pairs; in `limited
 * worker` a child of who listens accepts callers without the library. `limited visited` has no
 * descriptor left for another process that asks for a connection, and spends no time on it. */
#include "check.h"

#include <stddef.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

/* Connects where `port_of` says, tells `connected`, and sees what becomes of it. */
static int call(int port_of, int connected, int is_first)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char byte;
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(read(port_of, &to.sin_port, sizeof to.sin_port) == sizeof to.sin_port);
	CHECK(connect(fd, (void *)&to, sizeof to) == 0);
	CHECK(write(connected, "c", 1) == 1);
	if (is_first)
		FAILS(read(fd, &byte, 1), ECONNRESET);
	else
		CHECK(read(fd, &byte, 1) == 1 && byte == 's');
	return 0;
}

static pid_t begin_call(int port[2], int connected[2], in_port_t at, int is_first)
{
	char byte;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(call(port[0], connected[1], is_first));
	CHECK(write(port[1], &at, sizeof at) == sizeof at);
	CHECK(read(connected[0], &byte, 1) == 1);
	return child;
}

/* Leaves one descriptor, and gives the limit that was there. */
static struct rlimit leave_one(void)
{
	struct rlimit before, one;
	int next = dup(0);
	CHECK(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
	one = before;
	one.rlim_cur = next + 1;
	CHECK(setrlimit(RLIMIT_NOFILE, &one) == 0);
	return before;
}

static void expect_end(pid_t child)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Accepts with the last descriptor. */
static int work(int listener)
{
	int fd, last = -1;
	while ((fd = dup(0)) >= 0)
		last = fd;
	CHECK(errno == EMFILE && close(last) == 0);
	for (int calls = 0; calls < 2; calls++) {
		fd = accept(listener, NULL, NULL);
		CHECK(fd >= 0 && write(fd, "s", 1) == 1 && close(fd) == 0);
	}
	return 0;
}

static int work_below(void)
{
	struct rlimit few = { 256, 256 };
	struct sockaddr_in at;
	char byte;
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	int listener = listen_on_loopback(&at);
	pid_t worker = fork();
	CHECK(worker >= 0);
	if (worker == 0)
		_exit(work(listener));
	for (int calls = 0; calls < 2; calls++) {
		int plain = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(syscall(SYS_connect, plain, &at, sizeof at) == 0);
		CHECK(read(plain, &byte, 1) == 1 && byte == 's');
	}
	expect_end(worker);
	return 0;
}

static double seconds(clockid_t clock)
{
	struct timespec now;
	CHECK(clock_gettime(clock, &now) == 0);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static void visit_desk(int visitor, int listener)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct stat found;
	CHECK(fstat(listener, &found) == 0);
	int octets = snprintf(name.sun_path + 1, sizeof name.sun_path - 1,
			      "weft-sockets/handoff/%ju", (uintmax_t)found.st_ino);
	socklen_t len = offsetof(struct sockaddr_un, sun_path) + 1 + octets;
	CHECK(connect(visitor, (void *)&name, len) == 0);
}

static int be_visited(void)
{
	struct rlimit before, none;
	struct sockaddr_in at;
	char byte;
	int listener = listen_on_loopback(&at), visitor = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	CHECK(visitor >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = before;
	none.rlim_cur = 0;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	visit_desk(visitor, listener);
	/* A thread that tries again and again takes all the time that it is given. */
	double spent = seconds(CLOCK_PROCESS_CPUTIME_ID), until = seconds(CLOCK_MONOTONIC) + 3;
	while (seconds(CLOCK_MONOTONIC) < until) {
		CHECK(seconds(CLOCK_PROCESS_CPUTIME_ID) < spent + 0.3);
		usleep(20000);
	}
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	/* Who says nothing is sent away, and so was let in. */
	CHECK(read(visitor, &byte, 1) == 0);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at;
	if (argc > 1 && !strcmp(argv[1], "visited"))
		return be_visited();
	if (argc > 1 && !strcmp(argv[1], "worker"))
		return work_below();
	int port[2], connected[2], fd, plain, is_granted = argc > 1 && !strcmp(argv[1], "granted");
	CHECK(pipe(port) == 0 && pipe(connected) == 0);
	int listener = listen_on_loopback(&at);
	pid_t first = begin_call(port, connected, at.sin_port, 1), second;
	struct rlimit before = leave_one();
	FAILS(accept(listener, NULL, NULL), EMFILE);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	if (is_granted)
		expect_end(first);
	second = begin_call(port, connected, at.sin_port, 0);
	fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0 && write(fd, "s", 1) == 1);
	expect_end(second);
	if (!is_granted)
		expect_end(first);
	/* Who offers nothing is accepted with the last descriptor too. */
	plain = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(syscall(SYS_connect, plain, &at, sizeof at) == 0);
	before = leave_one();
	fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0 && write(fd, "s", 1) == 1);
	return setrlimit(RLIMIT_NOFILE, &before);
}

/* A process with a connection makes a child that the C library does not tell of: `cloned clone` by
 * the system call, `cloned fork` by _Fork(3). Each of the two then listens, accepts a connection of
 * the other, and has one to the other. */
#include "check.h"

static void greet(const struct sockaddr_in *at, const char *greeting)
{
	char answer[8];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(fd, (void *)at, sizeof *at) == 0);
	CHECK(write(fd, greeting, 5) == 5 && recv(fd, answer, 5, MSG_WAITALL) == 5);
	CHECK(!memcmp(answer, greeting, 5) && read(fd, answer, 1) == 0);
	close(fd);
}

static void answer(int listener)
{
	char greeting[8];
	int fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0 && recv(fd, greeting, 5, MSG_WAITALL) == 5);
	CHECK(write(fd, greeting, 5) == 5);
	close(fd);
}

static void be_child(const struct sockaddr_in *parent, int to_parent)
{
	struct sockaddr_in at;
	/* It is not to outlive the test, should it wait for threads that it does not have. */
	alarm(60);
	int listener = listen_on_loopback(&at);
	CHECK(write(to_parent, &at, sizeof at) == sizeof at);
	answer(listener);
	greet(parent, "child");
	exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at, of_child;
	int ours[2], status, listener = listen_on_loopback(&at), near = socket(AF_INET, SOCK_STREAM, 0);
	char octet;
	CHECK(argc == 2 && connect(near, (void *)&at, sizeof at) == 0);
	int far = accept(listener, NULL, NULL);
	CHECK(far >= 0 && pipe(ours) == 0);
	pid_t child = !strcmp(argv[1], "fork") ? _Fork() : syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	CHECK(child >= 0);
	if (child == 0)
		be_child(&at, ours[1]);
	CHECK(read(ours[0], &of_child, sizeof of_child) == sizeof of_child);
	greet(&of_child, "hello");
	answer(listener);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	/* Nothing of the child was done to what its parent has. */
	CHECK(write(near, "x", 1) == 1 && read(far, &octet, 1) == 1 && octet == 'x');
	return 0;
}

/* A caller waits to be accepted by a listener that is closed, while a child of the server goes on
 * without it: the caller hears that it is refused, as by TCP. The argument says who closes the
 * listener last. */
#include "check.h"

#include <poll.h>

static void call(const struct sockaddr_in *at, int told)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char byte;
	CHECK(fd >= 0 && connect(fd, (const void *)at, sizeof *at) == 0);
	CHECK(write(told, "c", 1) == 1);
	CHECK(read(fd, &byte, 1) <= 0);
}

/* Goes on without the listener until `until` ends. */
static void serve(int listener, int told, int until, int is_last)
{
	char byte;
	struct pollfd one = { .fd = listener, .events = POLLIN };
	/* With a look at it, as servers have. */
	CHECK(poll(&one, 1, 0) >= 0);
	if (is_last)
		CHECK(write(told, "s", 1) == 1 && read(until, &byte, 1) == 1);
	CHECK(close(listener) == 0);
	if (!is_last)
		CHECK(write(told, "s", 1) == 1);
	CHECK(read(until, &byte, 1) == 0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int told[2], until[2], status, listener = socket(AF_INET, SOCK_STREAM, 0);
	char byte;
	CHECK(argc == 2);
	int child_is_last = !strcmp(argv[1], "child");
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind_port(listener, &at, sizeof at);
	CHECK(listen(listener, 5) == 0 && pipe(told) == 0 && pipe(until) == 0);
	pid_t server = fork();
	if (server == 0) {
		CHECK(close(until[1]) == 0);
		serve(listener, told[1], until[0], child_is_last);
		_exit(0);
	}
	CHECK(server > 0 && read(told[0], &byte, 1) == 1 && byte == 's');
	pid_t caller = fork();
	if (caller == 0) {
		CHECK(close(until[1]) == 0 && close(listener) == 0);
		call(&at, told[1]);
		_exit(0);
	}
	CHECK(caller > 0 && read(told[0], &byte, 1) == 1 && byte == 'c');
	CHECK(close(listener) == 0);
	if (child_is_last)
		CHECK(write(until[1], "l", 1) == 1);
	CHECK(waitpid(caller, &status, 0) == caller && status == 0);
	CHECK(close(until[1]) == 0);
	CHECK(waitpid(server, &status, 0) == server && status == 0);
	return 0;
}

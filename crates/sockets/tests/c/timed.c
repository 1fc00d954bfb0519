/* A connect that waits no longer than SO_SNDTIMEO, and goes on: nobody answers by UDP, or (with
 * `refused`) its port is closed, and TCP's listener has no room at first. */
#include "check.h"

enum { LIMIT_S = 20 };

int main(int argc, char **argv)
{
	struct sockaddr_in at;
	socklen_t len = sizeof at;
	struct timeval limit = { 0, 300000 };
	int listener = full_listener(&at, 0), silent = socket(AF_INET, SOCK_DGRAM, 0);
	int error, fd = socket(AF_INET, SOCK_STREAM, 0);
	struct pollfd wanted = { fd, POLLOUT, 0 };
	time_t until = time(NULL) + LIMIT_S;
	CHECK(argc == 2);
	if (strcmp(argv[1], "refused"))
		CHECK(bind(silent, (void *)&at, len) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
	FAILS(connect(fd, (void *)&at, len), EINPROGRESS);
	FAILS(connect(fd, (void *)&at, len), EALREADY);
	CHECK(time(NULL) < until);
	CHECK(syscall(SYS_accept, listener, NULL, NULL) >= 0);
	CHECK(poll(&wanted, 1, 1000 * LIMIT_S) == 1 && wanted.revents == POLLOUT);
	len = sizeof error;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
	CHECK(write(fd, "x", 1) == 1);
	return 0;
}

/* Options that are set while a connect is in progress hold for the connection by TCP that comes of
 * it: the peer does not answer by SDP. */
#include "check.h"

static int option_of(int fd, int name)
{
	int value = -1;
	socklen_t len = sizeof value;
	CHECK(getsockopt(fd, SOL_SOCKET, name, &value, &len) == 0);
	return value;
}

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct timeval patience = { .tv_usec = 300000 }, kept = { 0 };
	struct linger none = { 1, 0 }, kept_linger = { 0 };
	socklen_t len = sizeof at;
	int one = 1, five = 5, is_free, listener = socket(AF_INET, SOCK_STREAM, 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	do {
		int silent = socket(AF_INET, SOCK_DGRAM, 0);
		at.sin_port = 0;
		CHECK(bind(silent, (void *)&at, len) == 0);
		CHECK(getsockname(silent, (void *)&at, &len) == 0);
		is_free = bind(listener, (void *)&at, len) == 0;
		CHECK(is_free || errno == EADDRINUSE);
	} while (!is_free);
	/* Past the library, which would serve SDP there. */
	CHECK(syscall(SYS_listen, listener, 1) == 0);

	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct pollfd connected = { .fd = fd, .events = POLLOUT };
	FAILS(connect(fd, (void *)&at, sizeof at), EINPROGRESS);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &five, sizeof five) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
	CHECK(poll(&connected, 1, -1) == 1 && option_of(fd, SO_ERROR) == 0);
	CHECK(option_of(fd, SO_DOMAIN) == AF_INET);
	CHECK(option_of(fd, SO_KEEPALIVE) == 1 && option_of(fd, SO_OOBINLINE) == 1);
	CHECK(option_of(fd, SO_RCVLOWAT) == 5);
	len = sizeof kept;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kept, &len) == 0);
	CHECK(kept.tv_sec == 0 && kept.tv_usec == patience.tv_usec);
	len = sizeof kept_linger;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_LINGER, &kept_linger, &len) == 0);
	CHECK(kept_linger.l_onoff == 1 && kept_linger.l_linger == 0);
	return 0;
}

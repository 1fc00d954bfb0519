/* With MSG_TRUNC what is received is dropped: the buffer stays as it is, or there is none. */
#include "check.h"

int main(void)
{
	struct sockaddr_in at, from;
	socklen_t len = sizeof from;
	int listener = listen_on_loopback(&at), fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(fd, (void *)&at, sizeof at) == 0);
	int other = accept(listener, NULL, NULL);
	static uint8_t much[100000], octet = 'g';
	fill(much, sizeof much, 0);
	CHECK(other >= 0 && write(other, much, sizeof much) == sizeof much);
	CHECK(recv(fd, &octet, 1, MSG_TRUNC) == 1 && octet == 'g');
	CHECK(recv(fd, NULL, 20000, MSG_TRUNC | MSG_WAITALL) == 20000);
	CHECK(recv(fd, NULL, 3, MSG_TRUNC | MSG_PEEK) == 3);
	CHECK(recvfrom(fd, NULL, 1 << 14, MSG_TRUNC | MSG_WAITALL, (void *)&from, &len) == 1 << 14);
	CHECK(len == 0);
	size_t dropped = 1 + 20000 + (1 << 14), rest = sizeof much - dropped;
	CHECK(recv(fd, much, rest, MSG_WAITALL) == (ssize_t)rest);
	check_octets(much, rest, dropped);
	FAILS(recv(fd, NULL, 1, MSG_TRUNC | MSG_DONTWAIT), EAGAIN);
	close(other);
	CHECK(recv(fd, NULL, 1, MSG_TRUNC) == 0);
	return 0;
}

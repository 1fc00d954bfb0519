/* Visitors of a desk who do not say what they want: `visitor INODE COUNT` connects COUNT times to
 * the desk of the listener with this number, as another user if it can be one, says so on stderr,
 * and comes again whenever it is sent away. Each third one sends descriptors that nobody asked
 * for; the second one of `visitor INODE COUNT lingering` sends a socket whose end waits for its
 * peer. */
#include "check.h"
#include <stddef.h>
#include <sys/un.h>

#define NOBODY 65534
#define MOST 512

static struct sockaddr_un name;
static int lingers;
static socklen_t name_len;

static void send_too_much(int fd)
{
	char octets[3] = { 1, 2, 3 };
	union { struct cmsghdr header; char room[CMSG_SPACE(3 * sizeof(int))]; } control = { 0 };
	struct iovec part = { octets, sizeof octets };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = sizeof control };
	int fds[3] = { 0, 1, 2 };
	control.header.cmsg_len = CMSG_LEN(sizeof fds);
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(&control.header), fds, sizeof fds);
	/* It may have been sent away already. */
	(void)!sendmsg(fd, &message, MSG_NOSIGNAL);
}

/* One end of a connection that has more to send than the other end takes. */
static int lingering(void)
{
	static char room[1 << 16];
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct linger linger = { 1, 60 };
	socklen_t len = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bind_port(listener, &at, len);
	CHECK(listen(listener, 1) == 0);
	CHECK(connect(fd, (void *)&at, len) == 0);
	/* Never read, nor closed while this process lives. */
	CHECK(accept(listener, NULL, NULL) >= 0);
	while (send(fd, room, sizeof room, MSG_DONTWAIT) > 0)
		;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
	return fd;
}

static void send_one(int to, int fd)
{
	char octet = 0;
	union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = { 0 };
	struct iovec part = { &octet, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = sizeof control };
	control.header.cmsg_len = CMSG_LEN(sizeof fd);
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	(void)!sendmsg(to, &message, MSG_NOSIGNAL);
}

static int visit(int number)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	if (connect(fd, (void *)&name, name_len) != 0)
		return close(fd), -1;
	if (number % 3 == 2)
		send_too_much(fd);
	if (number == 1 && lingers) {
		/* The message has the last one that there is: the desk does not run yet. */
		int other = lingering();
		lingers = 0;
		send_one(fd, other);
		close(other);
	}
	return fd;
}

int main(int argc, char **argv)
{
	static struct pollfd here[MOST];
	CHECK(argc == 3 || argc == 4);
	lingers = argc == 4;
	int count = atoi(argv[2]);
	CHECK(count > 0 && count <= MOST);
	if (geteuid() == 0)
		CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	name.sun_family = AF_UNIX;
	int octets = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "weft-sockets/handoff/%s",
			      argv[1]);
	name_len = offsetof(struct sockaddr_un, sun_path) + 1 + octets;
	for (int i = 0; i < count; i++) {
		here[i] = (struct pollfd){ visit(i), POLLIN, 0 };
		CHECK(here[i].fd >= 0);
	}
	fprintf(stderr, "here %d\n", count);
	for (;;) {
		CHECK(poll(here, count, -1) > 0);
		for (int i = 0; i < count; i++) {
			if (here[i].fd < 0 || !here[i].revents)
				continue;
			close(here[i].fd);
			/* Once the desk is closed there is nobody to visit. */
			if ((here[i].fd = visit(i)) < 0)
				return 0;
		}
	}
}

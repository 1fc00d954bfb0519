/* An application that permits itself to write by write alone (seccomp), with a connection or with a
 * file where a connection was: `filtered connection`, `filtered file`. */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define REFUSES(call)                                                     \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),                      \
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

static struct sock_filter filter[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	REFUSES(SYS_sendto),
	REFUSES(SYS_sendmsg),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static struct sock_fprog program = { sizeof filter / sizeof *filter, filter };

int main(int argc, char **argv)
{
	struct sockaddr_in at;
	int listener = listen_on_loopback(&at), fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(fd, (void *)&at, sizeof at) == 0 && argc == 2);
	if (!strcmp(argv[1], "connection")) {
		CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	} else {
		CHECK(close(fd) == 0 && open("/dev/null", O_WRONLY) == fd);
		/* Past the library, which would know of the filter. */
		CHECK(syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
		CHECK(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	}
	FAILS(send(fd, "x", 1, 0), EPERM);
	CHECK(write(fd, "x", 1) == 1);
	struct iovec part = { "x", 1 };
	CHECK(writev(fd, &part, 1) == 1);
	close(listener);
	return 0;
}

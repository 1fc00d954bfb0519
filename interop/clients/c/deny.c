/* Runs a command in which one system call fails: `deny ERRNO CALL [ARGUMENT=VALUE]... -- CMD`.
 *
 * All are numbers; ARGUMENT is that of the call, from 0. The call fails where each argument that is
 * named has the value that is named (its lower 32 bits). Children inherit the filter. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STEPS_MAX 32

static struct sock_filter steps[STEPS_MAX];
static unsigned short count;

static void step(struct sock_filter one) {
	if (count < STEPS_MAX)
		steps[count++] = one;
}

/* Allows the call unless the word at `offset` of its description has this value. */
static void require(size_t offset, unsigned value) {
	step((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
	step((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0));
	step((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

int main(int argc, char **argv) {
	if (argc < 5)
		return 2;
	unsigned error = strtoul(argv[1], NULL, 0);
	require(offsetof(struct seccomp_data, arch), AUDIT_ARCH_X86_64);
	require(offsetof(struct seccomp_data, nr), strtoul(argv[2], NULL, 0));
	char **word = argv + 3;
	for (; *word && strcmp(*word, "--") != 0; word++) {
		char *value;
		unsigned long at = strtoul(*word, &value, 0);
		if (at > 5 || *value != '=')
			return 2;
		size_t offset = offsetof(struct seccomp_data, args) + at * sizeof(__u64);
		require(offset, strtoul(value + 1, NULL, 0));
	}
	if (!*word || !word[1])
		return 2;
	step((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
	struct sock_fprog program = {.len = count, .filter = steps};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) {
		perror("deny");
		return 2;
	}
	execvp(word[1], word + 1);
	perror(word[1]);
	return 127;
}

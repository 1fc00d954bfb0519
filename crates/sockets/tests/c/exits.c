/* A process that ends while its threads still run and its standard streams hold something: what it
 * and its threads see of that, with a socket to itself open. `exits HOW`. */
#include "check.h"

static int caller = -1, callee = -1;

/* Connects two sockets of this process. */
static void join(void)
{
	struct sockaddr_in at;
	int listener = listen_on_loopback(&at);
	caller = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(caller, (void *)&at, sizeof at) == 0);
	callee = accept(listener, NULL, NULL);
	CHECK(callee >= 0);
	char octet;
	CHECK(write(caller, "x", 1) == 1 && read(callee, &octet, 1) == 1);
}

/* Whether a thread other than this one sleeps in the system call of that number. */
static void await_sleeper(int thread, long number)
{
	char path[64];
	long call = -1;
	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
	while (call != number) {
		FILE *file = fopen(path, "r");
		if (file && fscanf(file, "%ld", &call) != 1)
			call = -1;
		if (file)
			fclose(file);
		usleep(1000);
	}
}

static int other;

static void *reads_standard_input(void *unused)
{
	__atomic_store_n(&other, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	getchar();
	return unused;
}

/* Looks again and again at a socket on which nothing comes, as event loops do. */
static void *polls_socket(void *unused)
{
	__atomic_store_n(&other, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	for (;;) {
		struct pollfd on[] = { { callee, POLLIN, 0 }, { caller, POLLIN, 0 } };
		if (poll(on, 2, 1) != 0) {
			fprintf(stderr, "the end was seen\n");
			return unused;
		}
	}
}

/* The last words of a program. */
static void say_goodbye(void)
{
	char octets[8];
	CHECK(write(caller, "goodbye", 8) == 8);
	CHECK(read(callee, octets, 8) == 8 && !strcmp(octets, "goodbye"));
	fprintf(stderr, "goodbye\n");
}

static void begin(void *(*body)(void *))
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, body, NULL) == 0);
	while (!__atomic_load_n(&other, __ATOMIC_SEQ_CST))
		usleep(1000);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	if (!strcmp(argv[1], "stdin")) {
		/* Nothing ever comes, and the thread that waits for it has the stream locked. */
		int ends[2];
		CHECK(pipe(ends) == 0 && dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
		join();
		begin(reads_standard_input);
		await_sleeper(other, SYS_read);
		printf("said\n");
		exit(0);
	}
	if (!strcmp(argv[1], "child")) {
		/* The child has a copy of what its parent has yet to write. */
		CHECK(setvbuf(stdout, NULL, _IOFBF, BUFSIZ) == 0);
		printf("said\n");
		pid_t child = fork();
		if (child == 0) {
			join();
			_exit(0);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
		exit(0);
	}
	if (!strcmp(argv[1], "stream")) {
		/* It arrives at another process, which ends later. */
		pid_t child;
		int ends[2];
		join();
		CHECK(pipe(ends) == 0);
		child = fork();
		if (child == 0) {
			char octets[8] = "";
			close(caller);
			close(ends[1]);
			CHECK(read(callee, octets, 4) == 4);
			fprintf(stderr, "%s\n", octets);
			_exit(0);
		}
		close(callee);
		FILE *stream = fdopen(caller, "w");
		CHECK(stream && fputs("held", stream) >= 0);
		exit(0);
	}
	if (!strcmp(argv[1], "handler")) {
		/* Called after what the library registers later. */
		CHECK(atexit(say_goodbye) == 0);
		join();
		exit(0);
	}
	/* A socket whose bytes never arrive, for which the end waits, beside one that is idle. */
	join();
	static uint8_t octets[1 << 20];
	CHECK(fcntl(caller, F_SETFL, O_NONBLOCK) == 0);
	while (write(caller, octets, sizeof octets) > 0)
		;
	join();
	begin(polls_socket);
	exit(0);
}

/* A process ends with the last thread of the application, also where the first one has ended
 * before by itself: its handlers run, and its status is 0. */
#include "device.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOKS = 3000, LOOK_US = 10000 };

static int told[2];
static pthread_t first;

static void tell(void)
{
	CHECK(write(told[1], "e", 1) == 1);
}

/* Waits until the first thread has ended. */
static void *works(void *first)
{
	CHECK(pthread_join(*(pthread_t *)first, NULL) == 0);
	struct ibv_context *context = ibv_open_device(device_named("weft0"));
	CHECK(context);
	CHECK(write(told[1], "w", 1) == 1);
	return NULL;
}

/* The library has threads before the first one ends, or only since. */
static void be_child(int is_early)
{
	pthread_t thread;
	CHECK(!is_early || ibv_open_device(device_named("weft0")));
	CHECK(atexit(tell) == 0);
	first = pthread_self();
	CHECK(pthread_create(&thread, NULL, works, &first) == 0 && pthread_detach(thread) == 0);
	pthread_exit(NULL);
}

static void ends(int is_early)
{
	char text[3] = "";
	int status, looks = 0;
	CHECK(pipe(told) == 0);
	pid_t child = fork();
	if (child == 0)
		be_child(is_early);
	while (waitpid(child, &status, WNOHANG) == 0) {
		CHECK(looks++ < LOOKS || kill(child, SIGKILL) == 0);
		usleep(LOOK_US);
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(read(told[0], text, 2) == 2 && !strcmp(text, "we"));
	CHECK(close(told[0]) == 0 && close(told[1]) == 0);
}

/* A thread that forks is the first one of the child. */
static void *forks(void *none)
{
	ends(0);
	return none;
}

int main(void)
{
	pthread_t thread;
	ends(1);
	ends(0);
	CHECK(pthread_create(&thread, NULL, forks, NULL) == 0 && pthread_join(thread, NULL) == 0);
	return 0;
}

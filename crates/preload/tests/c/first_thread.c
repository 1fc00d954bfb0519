/* A process ends with the last thread of the application, also where the first one has ended
 * before by itself: its handlers run, and its status is 0. */
#include "device.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOKS = 3000, LOOK_US = 10000 };

static int told[2];

static void tell(void)
{
	CHECK(write(told[1], "e", 1) == 1);
}

static void *works(void *none)
{
	(void)none;
	struct ibv_context *context = ibv_open_device(device_named("weft0"));
	CHECK(context);
	CHECK(write(told[1], "w", 1) == 1);
	return NULL;
}

static void be_child(void)
{
	pthread_t thread;
	CHECK(ibv_open_device(device_named("weft0")));
	CHECK(atexit(tell) == 0);
	CHECK(pthread_create(&thread, NULL, works, NULL) == 0 && pthread_detach(thread) == 0);
	pthread_exit(NULL);
}

int main(void)
{
	char text[3] = "";
	int status, looks = 0;
	CHECK(pipe(told) == 0);
	pid_t child = fork();
	if (child == 0)
		be_child();
	while (waitpid(child, &status, WNOHANG) == 0) {
		CHECK(looks++ < LOOKS || kill(child, SIGKILL) == 0);
		usleep(LOOK_US);
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(read(told[0], text, 2) == 2 && !strcmp(text, "we"));
	return 0;
}

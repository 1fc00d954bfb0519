/* A process that forks while messages of its own are under way, and nobody polls for them, leaves
 * a child that can make connections. */
#include "pair.h"

#include <sys/wait.h>

enum { FORKS = 150, MESSAGES = 8, LENGTH = 64 << 10 };

static void launch(void)
{
	for (int i = 0; i < MESSAGES; i++)
		receive(b, i, LENGTH, LENGTH);
	for (int i = 0; i < MESSAGES; i++)
		post(a, IBV_WR_SEND, i, IBV_SEND_SIGNALED, 0, LENGTH, 0);
}

static void land(void)
{
	for (int i = 0; i < MESSAGES; i++) {
		ends(a, i, IBV_WC_SUCCESS);
		ends(b, i, IBV_WC_SUCCESS);
	}
}

static void be_child(int argc, char **argv)
{
	begin(argc, argv);
	pair();
	launch();
	land();
	part();
	_exit(finish());
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	pair();
	for (int i = 0; i < FORKS; i++) {
		launch();
		pid_t child = fork();
		if (child == 0)
			be_child(argc, argv);
		int status;
		CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
		land();
	}
	part();
	return finish();
}

/* Says how many devices there are, twice, as a program that warns twice would show. */
#include <infiniband/verbs.h>

#include "check.h"

int main(void)
{
	for (int i = 0; i < 2; i++) {
		int count = -1;
		struct ibv_device **list = ibv_get_device_list(&count);
		const char *name = list && count > 0 ? ibv_get_device_name(list[0]) : "none";
		fprintf(stderr, "devices: %d, first: %s\n", count, name);
		if (list)
			ibv_free_device_list(list);
	}
	CHECK(ibv_wc_status_str(IBV_WC_SUCCESS));
	return 0;
}

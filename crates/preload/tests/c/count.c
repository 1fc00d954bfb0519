/* Names the devices, twice, as a program that warns twice would show. */
#include <infiniband/verbs.h>

#include "check.h"

int main(void)
{
	for (int i = 0; i < 2; i++) {
		int count = -1;
		struct ibv_device **list = ibv_get_device_list(&count);
		fprintf(stderr, "devices: %d\n", count);
		for (int j = 0; list && list[j]; j++)
			fprintf(stderr, "device %s\n", ibv_get_device_name(list[j]));
		if (list)
			ibv_free_device_list(list);
	}
	CHECK(ibv_wc_status_str(IBV_WC_SUCCESS));
	return 0;
}

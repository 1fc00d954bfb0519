/* Succeeds if there is an RDMA device that can be opened. */
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    if (!list || count == 0) {
        fprintf(stderr, "no RDMA device\n");
        return 1;
    }
    struct ibv_context *context = ibv_open_device(list[0]);
    if (!context) {
        perror("ibv_open_device");
        return 1;
    }
    printf("%s\n", ibv_get_device_name(list[0]));
    ibv_close_device(context);
    ibv_free_device_list(list);
    return 0;
}

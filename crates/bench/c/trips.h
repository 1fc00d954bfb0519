/* Round trips: kept one by one, reported as half of their mean and of their median. */

#include <stdio.h>
#include <stdlib.h>

struct trips {
    double *us;
    size_t count, room;
};

static inline void add_trip(struct trips *trips, double us) {
    if (trips->count == trips->room) {
        trips->room = trips->room ? 2 * trips->room : 1024;
        trips->us = realloc(trips->us, trips->room * sizeof *trips->us);
        if (trips->us == NULL)
            abort();
    }
    trips->us[trips->count++] = us;
}

static inline int compare_us(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median_us(struct trips *trips) {
    qsort(trips->us, trips->count, sizeof *trips->us, compare_us);
    return trips->us[trips->count / 2];
}

static inline void print_trips(struct trips *trips) {
    double sum = 0;
    for (size_t i = 0; i < trips->count; i++)
        sum += trips->us[i];
    double mean = sum / trips->count;
    printf("{\"us\": %.4f, \"p50\": %.4f}\n", mean / 2, median_us(trips) / 2);
    free(trips->us);
}

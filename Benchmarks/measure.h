// What the floors measure and print.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/// What this process has used up to now.
typedef struct {
    long long time_ns, cpu_us, allocations;
} measurement_t;

/// Of allocations.c, if that is preloaded.
extern long long allocations_so_far(void) __attribute__((weak));

static void fail(const char *what) {
    fprintf(stderr, "floor: %s\n", what);
    exit(1);
}

static measurement_t measure(void) {
    struct timespec t;
    struct rusage usage;
    clock_gettime(CLOCK_MONOTONIC, &t);
    getrusage(RUSAGE_SELF, &usage);
    return (measurement_t){
        .time_ns = t.tv_sec * 1000000000LL + t.tv_nsec,
        .cpu_us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec,
        .allocations = allocations_so_far ? allocations_so_far() : 0};
}

static long rss_kib(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return pages * 4;
}

/// How late the values came, in nanoseconds, and how many did; NULL: that is not measured.
static long long *latencies;
static long latency_count;

/// - bytes: a value of at least 12 bytes.
static void note_latency(const void *bytes) {
    long long sent;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    memcpy(&sent, (const char *)bytes + 4, sizeof sent);
    latencies[latency_count++] = now.tv_sec * 1000000000LL + now.tv_nsec - sent;
}

static int in_order(const void *a, const void *b) {
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

/// - before: when the work began; - first: when its first event came.
static void print_events(long count, const measurement_t *before, const measurement_t *first) {
    measurement_t last = measure();
    printf("{");
    if (latency_count) {
        qsort(latencies, (size_t)latency_count, sizeof *latencies, in_order);
        printf("\"p50_us\": %.2f, \"p99_us\": %.2f, ", (double)latencies[latency_count / 2] / 1e3,
               (double)latencies[latency_count * 99 / 100] / 1e3);
    }
    printf("\"events\": %ld, \"cpu_us\": %lld, \"allocations\": %lld, \"first_ns\": %lld, \"seconds\": %.6f, \"rss_kib\": %ld}\n",
           count, last.cpu_us - before->cpu_us, last.allocations - before->allocations, first->time_ns,
           (double)(last.time_ns - first->time_ns) / 1e9, rss_kib());
}

/// - at: the generator's marks; - events: how many came before each.
static void print_scan(const long events[3], const measurement_t at[3]) {
    printf("{\"new\": %ld, \"new_cpu_us\": %lld, \"new_allocations\": %lld, \"updates\": %ld, \"updates_cpu_us\": %lld, "
           "\"updates_allocations\": %lld, \"rss_kib\": %ld}\n",
           events[1], at[1].cpu_us - at[0].cpu_us, at[1].allocations - at[0].allocations, events[2],
           at[2].cpu_us - at[1].cpu_us, at[2].allocations - at[1].allocations, rss_kib());
}

// Bytes a second that N threads read from memory: memory_read THREADS MIB SECONDS
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef uint64_t Lanes __attribute__((vector_size(64)));

typedef struct {
  const Lanes* data;
  size_t count;
  double until;
  uint64_t sum, bytes;
} Part;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Four sums: one alone would wait for its own additions.
static void pass(Part* part) {
  Lanes sums[4] = {{0}, {0}, {0}, {0}};
  for (size_t i = 0; i + 4 <= part->count; i += 4) {
    __builtin_prefetch((const char*)(part->data + i) + 4096);
    for (int k = 0; k < 4; ++k) sums[k] += part->data[i + (size_t)k];
  }
  for (int k = 0; k < 4; ++k) part->sum += sums[k][0];
  part->bytes += part->count * sizeof(Lanes);
}

static void* run(void* argument) {
  Part* const part = argument;
  while (now() < part->until) pass(part);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int threads = atoi(argv[1]);
  const size_t bytes = (size_t)atoi(argv[2]) << 20;
  const size_t each = bytes / sizeof(Lanes) / (size_t)threads;
  Lanes* const data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (threads < 1 || threads > 256 || data == MAP_FAILED) return 1;
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, MADV_HUGEPAGE);
#endif
  memset(data, 1, bytes);
  pthread_t ids[256];
  Part parts[256];
  const double began = now();
  for (int i = 0; i < threads; ++i) {
    parts[i] = (Part){data + each * (size_t)i, each, began + atof(argv[3]), 0, 0};
    pthread_create(&ids[i], NULL, run, &parts[i]);
  }
  uint64_t total = 0, sum = 0;
  for (int i = 0; i < threads; ++i) {
    pthread_join(ids[i], NULL);
    total += parts[i].bytes;
    sum += parts[i].sum;
  }
  printf("%.0f %llu\n", (double)total / (now() - began), (unsigned long long)sum);
  return 0;
}

// Bytes a second that N threads read from memory: memory_read THREADS MIB SECONDS
// The faster of two loops, each for half of the time: one leaves asking for lines to the processor, one asks for each.
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
  size_t ahead;
  double until;
  uint64_t sum, bytes;
} Part;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Four sums: one alone would wait for its own additions. `ahead`: bytes from what is read to what is asked for, or 0.
static inline void pass(Part* part, size_t ahead) {
  Lanes sums[4] = {{0}, {0}, {0}, {0}};
  for (size_t i = 0; i + 4 <= part->count; i += 4)
    for (size_t k = 0; k < 4; ++k) {
      if (ahead != 0) __builtin_prefetch((const char*)(part->data + i + k) + ahead);
      sums[k] += part->data[i + k];
    }
  for (int k = 0; k < 4; ++k) part->sum += sums[k][0];
  part->bytes += part->count * sizeof(Lanes);
}

static void* run(void* argument) {
  Part* const part = argument;
  while (now() < part->until) {
    if (part->ahead == 0) pass(part, 0);
    else pass(part, part->ahead);
  }
  return NULL;
}

// Bytes a second. `sum` takes what was read, so that reading it is not left out.
static double measure(const Lanes* data, size_t each, int threads, double seconds, size_t ahead, uint64_t* sum) {
  pthread_t ids[256];
  Part parts[256];
  const double began = now();
  for (int i = 0; i < threads; ++i) {
    parts[i] = (Part){data + each * (size_t)i, each, ahead, began + seconds, 0, 0};
    pthread_create(&ids[i], NULL, run, &parts[i]);
  }
  uint64_t total = 0;
  for (int i = 0; i < threads; ++i) {
    pthread_join(ids[i], NULL);
    total += parts[i].bytes;
    *sum += parts[i].sum;
  }
  return (double)total / (now() - began);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int threads = atoi(argv[1]);
  const size_t bytes = (size_t)atoi(argv[2]) << 20;
  const double seconds = atof(argv[3]) / 2;
  Lanes* const data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (threads < 1 || threads > 256 || data == MAP_FAILED) return 1;
  const size_t each = bytes / sizeof(Lanes) / (size_t)threads;
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, MADV_HUGEPAGE);
#endif
  memset(data, 1, bytes);
  uint64_t sum = 0;
  const double left = measure(data, each, threads, seconds, 0, &sum);
  const double asked = measure(data, each, threads, seconds, 4096, &sum);
  printf("%.0f %llu\n", left > asked ? left : asked, (unsigned long long)sum);
  return 0;
}

// Direct reads of RECORD bytes at random multiples of it, DEPTH at a time: bytes a second, and processor microseconds a read.
//   disk_read FILE RECORD DEPTH SECONDS pread|io_uring
// They go to random places of POOL bytes, as those of an expert cache do: into one buffer that stays in the caches, a disk
// whose data a processor copies (that of a virtual machine) is up to a fifth faster.
// pread: DEPTH threads. io_uring: one thread, by the system calls themselves (man 7 io_uring). Ends with 3 where the kernel
// offers no io_uring.
#define _GNU_SOURCE
#include <fcntl.h>
#ifdef __linux__
#include <linux/io_uring.h>
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef O_DIRECT
#define O_DIRECT 0
#endif

#define POOL ((size_t)1 << 30)

typedef struct {
  int file;
  size_t record, buffers;
  char* pool;
  uint64_t places, seed, reads;
  double until;
} Reader;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double processor_seconds(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void fail(const char* what) {
  perror(what);
  exit(1);
}

// In huge pages where there are such: the fewer pieces a buffer has, the larger are the requests that the disk gets. Written
// once before the clock starts, so that no page is new to the reads.
static void* buffer(size_t bytes) {
  const size_t huge = 2 << 20;
  char* memory = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  memory += huge - (uintptr_t)memory % huge;
#ifdef MADV_HUGEPAGE
  madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  return memset(memory, 1, bytes);
}

static uint64_t next(Reader* r) {  // splitmix64
  uint64_t z = (r->seed += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static uint64_t next_offset(Reader* r) { return next(r) % r->places * r->record; }
// What two reads leave in the same place is nobody's concern.
static char* next_buffer(Reader* r) { return r->pool + next(r) % r->buffers * r->record; }

static void* read_by_pread(void* argument) {
  Reader* const r = argument;
  for (; now() < r->until; ++r->reads)
    if (pread(r->file, next_buffer(r), r->record, (off_t)next_offset(r)) != (ssize_t)r->record) fail("pread");
  return NULL;
}

static uint64_t by_threads(Reader first, int depth) {
  pthread_t threads[64];
  Reader readers[64];
  for (int i = 0; i < depth; ++i) {
    readers[i] = first;
    readers[i].seed += (uint64_t)i;
    if (pthread_create(&threads[i], NULL, read_by_pread, &readers[i])) fail("pthread_create");
  }
  uint64_t reads = 0;
  for (int i = 0; i < depth; ++i) {
    pthread_join(threads[i], NULL);
    reads += readers[i].reads;
  }
  return reads;
}

#ifdef __linux__
typedef struct {
  int fd;
  unsigned *tail, *mask, *array, *done_head, *done_tail, *done_mask;
  struct io_uring_sqe* entries;
  struct io_uring_cqe* done;
} Uring;

static void* mapped(int fd, size_t bytes, off_t what) {
  void* const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);
  if (memory == MAP_FAILED) fail("mmap of io_uring");
  return memory;
}

static Uring uring(unsigned depth) {
  struct io_uring_params p = {0};
  const int fd = (int)syscall(SYS_io_uring_setup, depth, &p);
  if (fd < 0) exit(3);
  char* const sq = mapped(fd, p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
  char* const cq = mapped(fd, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
  return (Uring){fd,
                 (unsigned*)(sq + p.sq_off.tail),
                 (unsigned*)(sq + p.sq_off.ring_mask),
                 (unsigned*)(sq + p.sq_off.array),
                 (unsigned*)(cq + p.cq_off.head),
                 (unsigned*)(cq + p.cq_off.tail),
                 (unsigned*)(cq + p.cq_off.ring_mask),
                 mapped(fd, p.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES),
                 (struct io_uring_cqe*)(cq + p.cq_off.cqes)};
}

static void submit(Uring* u, Reader* r) {
  const unsigned at = *u->tail & *u->mask;
  u->entries[at] = (struct io_uring_sqe){.opcode = IORING_OP_READ,
                                         .fd = r->file,
                                         .off = next_offset(r),
                                         .addr = (uint64_t)(uintptr_t)next_buffer(r),
                                         .len = (unsigned)r->record};
  u->array[at] = at;
  __atomic_store_n(u->tail, *u->tail + 1, __ATOMIC_RELEASE);
}

static uint64_t by_io_uring(Reader r, int depth) {
  Uring u = uring((unsigned)depth);
  unsigned waiting = (unsigned)depth;
  for (int i = 0; i < depth; ++i) submit(&u, &r);
  while (now() < r.until) {
    if (syscall(SYS_io_uring_enter, u.fd, waiting, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0) fail("io_uring_enter");
    for (waiting = 0; *u.done_head != __atomic_load_n(u.done_tail, __ATOMIC_ACQUIRE); ++waiting, ++r.reads) {
      const struct io_uring_cqe* const done = &u.done[*u.done_head & *u.done_mask];
      if (done->res != (int)r.record) exit(1);
      submit(&u, &r);
      __atomic_store_n(u.done_head, *u.done_head + 1, __ATOMIC_RELEASE);
    }
  }
  return r.reads;
}

#else
static uint64_t by_io_uring(Reader r, int depth) {
  (void)r, (void)depth;
  exit(3);
}
#endif

int main(int count, char** words) {
  if (count != 6) return 2;
  const int depth = atoi(words[3]);
  Reader r = {.file = open(words[1], O_RDONLY | O_DIRECT), .record = (size_t)atoll(words[2]), .seed = 1};
  if (r.file < 0) r.file = open(words[1], O_RDONLY);  // a file system that knows no direct reads
  struct stat status;
  if (r.file < 0 || fstat(r.file, &status) || depth < 1 || depth > 64) fail(words[1]);
  r.places = (uint64_t)status.st_size / r.record;
  r.buffers = POOL / r.record;
  if (r.places == 0 || r.buffers == 0) return 2;
  r.pool = buffer(r.buffers * r.record);
  const double begin = now(), processor = processor_seconds();
  r.until = begin + atof(words[4]);
  const uint64_t reads = strcmp(words[5], "io_uring") ? by_threads(r, depth) : by_io_uring(r, depth);
  printf("%.6e %.1f\n", (double)reads * (double)r.record / (now() - begin), (processor_seconds() - processor) * 1e6 / (double)reads);
  return 0;
}

/* Loads the C library with dlopen() and calls it for the first time on a thread that is out of memory: the
 * call must fail, not the process. Argument: the library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <turnout/mluop/mlu_op.h>

extern void* __libc_malloc(size_t);
static volatile int memory_is_out = 0;
void* malloc(size_t bytes) { return memory_is_out ? NULL : __libc_malloc(bytes); }

static int (*create)(void** handle);
static const char* (*last_error)(void);
static int status;
static char first[128], second[128];

static void* run(void* unused) {
  memory_is_out = 1;
  status = create(NULL);
  strncpy(first, last_error(), sizeof(first) - 1);
  memory_is_out = 0;
  create(NULL);
  strncpy(second, last_error(), sizeof(second) - 1);
  return unused;
}

int main(int argc, char** argv) {
  void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
  pthread_t thread;
  if (library == NULL) return 2;
  *(void**)&create = dlsym(library, "mluOpCreate");
  *(void**)&last_error = dlsym(library, "turnoutLastError");
  if (create == NULL || last_error == NULL || pthread_create(&thread, NULL, run, NULL) != 0) return 2;
  pthread_join(thread, NULL);
  printf("status %d; without memory: %s; with memory: %s\n", status, first, second);
  return status == MLUOP_STATUS_BAD_PARAM && strstr(first, "memory") != NULL &&
                 strcmp(second, "mluOpCreate: handle is NULL") == 0
             ? 0
             : 1;
}

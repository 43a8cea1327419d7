/* The same calls as a block's, without an interpreter between them. The few functions of CPython's
   stable interface that it calls are declared here, as a Python without headers can run it, too. */

#include <time.h>

extern void *PyObject_CallNoArgs(void *function);
extern void *PyObject_CallOneArg(void *function, void *argument);
extern void Py_DecRef(void *object);

static long long read_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Nanoseconds of so many steps and of the wait for the last one. Where one raises, -1 with Python's
   exception set. */
long long time_steps(void *step, void *wait, long long steps) {
  void *output = 0, *waited;
  long long began = read_ns(), took;
  for (long long index = 0; index < steps; index++) {
    if (output)
      Py_DecRef(output);
    output = PyObject_CallNoArgs(step);
    if (!output)
      return -1;
  }
  waited = PyObject_CallOneArg(wait, output);
  took = read_ns() - began;
  Py_DecRef(output);
  if (!waited)
    return -1;
  Py_DecRef(waited);
  return took;
}

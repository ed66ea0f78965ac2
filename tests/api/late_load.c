/* Loads the library as Python does after `import torch`: into a process that is not linked with the C++ library, whose
 * C++ library came with a dlopen and whose thread-locals are in use. glibc gives each thread-local of a library that is
 * loaded late a place of its own at first use; a library that reaches them as static ones (relocations of kind TPOFF)
 * is refused from then on: "cannot allocate memory in static TLS block". */
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>

static int Fail(const char* what) {
  const char* const why = dlerror();
  fprintf(stderr, "%s: %s\n", what, why != NULL ? why : "");
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 2) return Fail("usage: late_load LIBRARY");
  if (dlsym(RTLD_DEFAULT, "__cxa_get_globals") != NULL)
    return Fail("the C++ library is here already, which proves nothing");
  void* const cxx = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL);
  if (cxx == NULL) return Fail("dlopen(libstdc++.so.6)");
  /* What std::call_once uses. The address of a thread-local is that of the calling thread's, which exists from now on.
   */
  void** const of_this_thread = dlsym(cxx, "_ZSt15__once_callable");
  if (of_this_thread == NULL) return Fail("libstdc++ has no thread-local __once_callable");
  *of_this_thread = NULL;

  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return Fail("loading the library late");
  ncclResult_t (*const init_all)(ncclComm_t*, int, const int*) =
      (ncclResult_t(*)(ncclComm_t*, int, const int*))dlsym(library, "ncclCommInitAll");
  ncclResult_t (*const destroy)(ncclComm_t) = (ncclResult_t(*)(ncclComm_t))dlsym(library, "ncclCommDestroy");
  if (init_all == NULL || destroy == NULL) return Fail("dlsym");
  ncclComm_t comms[2];
  if (init_all(comms, 2, NULL) != ncclSuccess) return Fail("ncclCommInitAll");
  for (int i = 0; i < 2; ++i)
    if (destroy(comms[i]) != ncclSuccess) return Fail("ncclCommDestroy");
  return 0;
}

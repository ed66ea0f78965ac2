// Functions of a library that is loaded when it is first needed (dlopen), with the types that its header declares.
//
//   #define MY_FUNCTIONS(X) X(first) X(second)
//   struct Library {
//     AXCCL_DYNAMIC_FUNCTIONS(MY_FUNCTIONS)   // pointers with these names, and Find
//   };
#pragma once

#include <dlfcn.h>

// Find takes the functions from `handle`. Returns the name of the first one that it lacks; null: it has all.
#define AXCCL_DYNAMIC_FUNCTIONS(LIST) \
  LIST(AXCCL_DYNAMIC_POINTER)         \
  const char* Find(void* handle) {    \
    LIST(AXCCL_DYNAMIC_FIND)          \
    return nullptr;                   \
  }
#define AXCCL_DYNAMIC_POINTER(name) decltype(&::name) name = nullptr;
#define AXCCL_DYNAMIC_FIND(name)                                       \
  name = reinterpret_cast<decltype(this->name)>(dlsym(handle, #name)); \
  if (name == nullptr) return #name;

/* Loads a plugin, calls its Run, and closes it. The plugin must stay, because threads of it run on. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* const plugin = argc < 2 ? NULL : dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) return printf("dlopen: %s\n", argc < 2 ? "usage: unload PLUGIN" : dlerror());
  int (*const run)(void) = (int (*)(void))dlsym(plugin, "Run");
  if (run == NULL || run() != 0 || dlclose(plugin) != 0) return printf("Run failed\n");
  return dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) == NULL ? printf("the plugin is unloaded\n") : 0;
}

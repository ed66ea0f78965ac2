/* A library with large thread-locals, which the loader allocates when a thread first uses them. */
static __thread char place[200000];

__attribute__((visibility("default"))) char* AxcclTestPlace(void);
char* AxcclTestPlace(void) { return place; }

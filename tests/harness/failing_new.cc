#include "tests/harness/failing_new.h"

#include <cstdlib>

namespace axccl::harness {
namespace {

thread_local long t_left = 0;  // calls until the one that fails; 0: none does
thread_local bool t_failed = false;

}  // namespace

FailingNew::FailingNew(long k) {
  t_failed = false;
  t_left = k;
}
FailingNew::~FailingNew() { t_left = 0; }
bool FailingNew::Failed() { return t_failed; }

}  // namespace axccl::harness

// Replaces all variants except the aligned ones, because sanitizers have their own of each.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  using namespace axccl::harness;  // NOLINT
  if (t_left > 0 && --t_left == 0) {
    t_failed = true;
    return nullptr;
  }
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(size_t bytes) {
  void* const p = operator new(bytes, std::nothrow);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new[](size_t bytes, const std::nothrow_t& none) noexcept { return operator new(bytes, none); }
void* operator new[](size_t bytes) { return operator new(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }

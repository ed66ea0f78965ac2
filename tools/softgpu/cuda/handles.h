// Objects behind the opaque handles of the API. A handle is the object's address; it is looked up before it is used, so
// that a stale or invented one is an error and not a crash. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace softgpu::cuda {

template <typename Object>
class Handles {
 public:
  Object* Add(std::shared_ptr<Object> object) {
    std::lock_guard lock(mutex_);
    Object* handle = object.get();
    objects_.emplace(handle, std::move(object));
    return handle;
  }

  // Returns null if there is none.
  std::shared_ptr<Object> Find(const void* handle) const {
    std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  // Returns the object, so that its destructor runs outside of the lock. Null if there was none.
  std::shared_ptr<Object> Remove(const void* handle) {
    std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  std::vector<std::shared_ptr<Object>> All() const {
    std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Object>> all;
    for (const auto& [handle, object] : objects_) all.push_back(object);
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<Object>> objects_;
};

// Never destroyed, because threads of the driver and exit handlers of the program may still use it at the end.
template <typename Object>
Handles<Object>& HandlesOf() {
  static auto* const handles = new Handles<Object>;
  return *handles;
}

}  // namespace softgpu::cuda

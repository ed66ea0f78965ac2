// Short lists without duplicates.
#pragma once

#include <algorithm>
#include <vector>

namespace axccl {

template <class T>
void AddOnce(std::vector<T>* list, T item) {
  if (std::find(list->begin(), list->end(), item) == list->end()) list->push_back(item);
}

}  // namespace axccl

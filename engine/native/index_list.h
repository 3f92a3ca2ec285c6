// A doubly linked list of some of the numbers 0 .. universe - 1, each at most once; every operation is O(1).
#pragma once

#include <cstddef>
#include <vector>

namespace smoe {

class IndexList {
 public:
  explicit IndexList(int universe) : links_(static_cast<std::size_t>(universe) + 1), end_(universe) {
    links_.back() = {end_, end_};
  }

  bool empty() const { return front() == end(); }
  int front() const { return next(end_); }
  int end() const { return end_; }
  int next(int i) const { return at(i).next; }
  bool contains(int i) const { return at(i).next != kAbsent; }

  void push_back(int i) {
    const int last = at(end_).previous;
    at(i) = {last, end_};
    at(last).next = i;
    at(end_).previous = i;
  }

  void remove(int i) {
    const Links links = at(i);
    at(links.previous).next = links.next;
    at(links.next).previous = links.previous;
    at(i) = {};
  }

  int pop_front() {
    const int i = front();
    remove(i);
    return i;
  }

 private:
  static constexpr int kAbsent = -1;
  struct Links { int previous = kAbsent, next = kAbsent; };

  Links& at(int i) { return links_[static_cast<std::size_t>(i)]; }
  const Links& at(int i) const { return links_[static_cast<std::size_t>(i)]; }

  std::vector<Links> links_;  // the last one closes the circle
  int end_;
};

}  // namespace smoe

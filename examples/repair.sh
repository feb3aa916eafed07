# What Bob is asked to do. His agent in this demo is a shell, so the task is a script; a real agent gets a sentence.
set -eu
export PYTHONDONTWRITEBYTECODE=1

echo "Looking at what fails:"
python3 -m unittest 2>&1 | grep -E '^(FAIL|AssertionError)' || true

echo "median() takes the upper of the two middle values; repairing it."
sed -i 's|^    return ordered\[middle\]$|    if len(ordered) % 2:\n        return ordered[middle]\n    return (ordered[middle - 1] + ordered[middle]) / 2|' statistics_lite.py

echo "Running the tests again, here in the mount:"
python3 -m unittest 2>&1
test ! -e .env && echo "There is no .env here."

import unittest

from statistics_lite import mean, median


class StatisticsTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 2, 6]), 3)

    def test_median_of_three(self):
        self.assertEqual(median([9, 1, 5]), 5)

    def test_median_of_four(self):
        self.assertEqual(median([4, 1, 3, 2]), 2.5)


if __name__ == "__main__":
    unittest.main()

module example.org/testing-with-weft

go 1.19

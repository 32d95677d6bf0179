-- Run by the image of PostgreSQL at its first start.
CREATE DATABASE fleet;
CREATE DATABASE cell1;
CREATE DATABASE cell2;

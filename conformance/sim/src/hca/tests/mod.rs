mod basic;
mod fixture;
